package kube

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/staging"
)

// An attempt that runs is not looked at again without an event, unless the clock may change its status: a node that
// is not ready, or pods that do not run yet.
func TestWhatRunsIsNotCheckedWithoutEvents(t *testing.T) {
	o := Options{Namespace: "jobs", NodeLostAfter: time.Hour, StartLimit: 30 * time.Minute, ScheduleLimit: 20 * time.Minute}
	b, err := newBackend(nil, o, staging.Terms{}, time.Second, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b.ready = true
	node := func(status corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}}}
	}
	pods := func(list ...*corev1.Pod) {
		for _, p := range list {
			if err := b.pods["jobs"].GetIndexer().Update(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := b.nodes.GetIndexer().Add(node(corev1.ConditionTrue)); err != nil {
		t.Fatal(err)
	}
	look := func(what string, phase launch.Phase, soonest, latest time.Duration) {
		t.Helper()
		s, err := b.Status(t.Context(), train.Attempt{Job: "j", Number: 1, Backend: train.BackendKubernetes, Phase: train.PhaseClaimed})
		if err != nil || s.Phase != phase || s.Again < soonest || s.Again > latest {
			t.Errorf("%s: phase %d, again after %s: %v; want %d, %s to %s", what, s.Phase, s.Again, err, phase, soonest, latest)
		}
	}
	pods(member(0), member(1))
	look("not scheduled yet", launch.Starting, launch.Soon, imageTime)
	pods(member(0, runs), member(1, runs))
	look("both run", launch.Running, 0, 0)
	if b.observeNode(node(corev1.ConditionTrue), false) {
		t.Error("a ready node wakes jobs")
	}
	if !b.observeNode(node(corev1.ConditionUnknown), false) || !slices.Contains(b.jobsOn("n1"), "j") {
		t.Errorf("a node that ceases to be ready does not wake its jobs, %v", b.jobsOn("n1"))
	}
	if b.observeNode(node(corev1.ConditionUnknown), true) {
		t.Error("a node that was not ready before wakes jobs")
	}
	look("their node is silent", launch.Running, time.Minute, o.NodeLostAfter)
	b.observeNode(node(corev1.ConditionTrue), false)
	look("it is back", launch.Running, 0, 0)
}
