package kube

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/staging"
)

func TestWhichDataPodsCanHave(t *testing.T) {
	with := defaults()
	with.DataImage = "executor:1"
	for _, test := range []struct {
		address string
		options Options
		want    error
	}{
		{"", defaults(), nil}, {"https://data.example/x", with, nil}, {"https://data.example/x", defaults(), errNoFetching}, {"file:///mnt/x", with, errNoFile},
	} {
		s := setting(launch.Place{Node: train.Node{ID: "n1"}, Devices: []train.Device{gpu("0", "aa", false)}})
		s.Spec.DataURL = test.address
		if _, err := newPodTemplate(s, key{"jobs", s.Job, s.Attempt.Number}, test.options, time.Second); !errors.Is(err, test.want) {
			t.Errorf("%q: %v, want %v", test.address, err, test.want)
		}
	}
}

// fetch puts the container of the data of a pod into a state.
func fetch(state corev1.ContainerState) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		order, _ := json.Marshal(staging.Order{URL: "https://data.example/$(x)?signature=y"})
		p.Spec.InitContainers = []corev1.Container{{Name: dataName, Image: "executor:1", Env: []corev1.EnvVar{{Name: staging.OrderVariable, Value: literal(string(order))}}}}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: dataName, State: state}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}}}
		if end := state.Terminated; end != nil && end.ExitCode != 0 {
			p.Status.Phase = corev1.PodFailed
		}
	}
}

func ended(code int32, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message, FinishedAt: metav1.NewTime(noon)}}
}

// Both pods of a gang fetch, for longer than their start may take.
func TestDataOfPodsOnItsWay(t *testing.T) {
	const done = `{"url": "https://data.example/x", "bytes": 5, "total": 5, "cached": true}`
	for name, test := range map[string]struct {
		state corev1.ContainerState
		want  launch.Phase
		exit  train.Exit
		shown *train.Staging
	}{
		"on its way":        {corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, launch.Starting, train.Exit{}, &train.Staging{URL: "https://data.example/$(x)"}},
		"there":             {ended(0, done), launch.Ending, train.Exit{Lost: true, Unstarted: true, Reason: train.Reason{Code: "GangIncomplete"}}, &train.Staging{URL: "https://data.example/x", Bytes: 5, Total: 5, Cached: true}},
		"later perhaps":     {ended(1, "the server answers 503"), launch.Exited, launch.NotStaged("data_url: the server answers 503", false), nil},
		"never":             {ended(staging.NeverCode, "too large"), launch.Exited, launch.NotStaged("data_url: too large", true), nil},
		"killed from above": {ended(137, ""), launch.Exited, train.Exit{Lost: true, Reason: train.Reason{Code: "PodFailed"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			v := view{
				attempt: train.Attempt{Job: "j", Number: 1, Phase: train.PhaseClaimed}, pods: []*corev1.Pod{member(0, fetch(test.state)), member(1, fetch(test.state))},
				lost: func(string) bool { return false }, waited: 2 * defaults().StartLimit, limits: defaults(),
			}
			s := v.status()
			if s.Phase != test.want || s.Exit.Lost != test.exit.Lost || s.Exit.Code != test.exit.Code || s.Exit.Reason.Code != test.exit.Reason.Code || test.exit.Message != "" && s.Exit.Message != test.exit.Message {
				t.Errorf("%v %+v", s.Phase, s.Exit)
			}
			shown := v.staging()
			if (shown == nil) != (test.shown == nil) || shown != nil && *shown != *test.shown {
				t.Errorf("shown: %+v", shown)
			}
		})
	}
}
