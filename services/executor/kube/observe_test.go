package kube

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/staging"
)

// An attempt whose pods could not be created in time ends with Kubernetes' own explanation, also if some of its pods
// were created.
func TestWhatForbidsPodsIsReported(t *testing.T) {
	forbidden := func(why string) error {
		return fmt.Errorf("create pod j-1-1: %w", apierrors.NewForbidden(corev1.Resource("pods"), "j-1-1", errors.New(why)))
	}
	for _, test := range []struct {
		fault      error
		code, text string
	}{
		{forbidden("exceeded quota: team, requested: limits.memory=2Gi, used: limits.memory=0, limited: limits.memory=1Gi"), launch.Forbidden, "exceeded quota: team"},
		{forbidden(`User "system:serviceaccount:a:b" cannot create resource "pods" in API group "" in the namespace "a"`), "NotCreated", "cannot create resource"},
		{apierrors.NewServiceUnavailable("busy"), "NotCreated", "busy"},
	} {
		for _, made := range [][]*corev1.Pod{nil, {member(0, runs)}} {
			client := fake.NewClientset()
			b, err := newBackend(client, defaults(), staging.Terms{}, time.Second, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			b.ready = true
			for _, p := range made {
				p.Namespace = b.options.Namespace
				if err := errors.Join(client.Tracker().Add(p), b.pods[b.options.Namespace].GetIndexer().Add(p)); err != nil {
					t.Fatal(err)
				}
			}
			k := key{"jobs", "j", 1}
			b.queue.failed[k], b.waitingSince[k] = test.fault, time.Now().Add(-2*b.options.StartLimit)
			s, err := b.Status(t.Context(), train.Attempt{Job: "j", Number: 1, Backend: train.BackendKubernetes, Phase: train.PhaseClaimed})
			if err != nil || !s.Exit.Unstarted || s.Exit.Reason.Code != test.code || !strings.Contains(s.Exit.Reason.Message, test.text) {
				t.Errorf("%d pods made, %v: %+v, error %v", len(made), test.fault, s.Exit, err)
			}
		}
	}
}
