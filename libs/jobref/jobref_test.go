package jobref_test

import (
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/jobref"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestResolve(t *testing.T) {
	noon := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	job := func(id, name, user string, minutes int) train.Job {
		return train.Job{ID: train.JobID(id), Spec: train.Spec{Name: name, User: user}, SubmittedAt: noon.Add(-time.Duration(minutes) * time.Minute)}
	}
	jobs := []train.Job{
		job("mnist-aa11", "mnist", "ann", 30), job("mnist-aa22", "mnist", "ann", 20), job("mnist-bb33", "mnist", "bob", 10), job("resnet-cc44", "resnet", "bob", 5),
		job("run1", "my run", "ann", 1), job("run1-more", "other", "ann", 1), job("nameless", "", "ann", 1),
	}
	array := job("sweep-dd55", "sweep", "ann", 1)
	array.Spec.Array = "0-9"
	member := job("sweep-dd55-3", "sweep", "ann", 1)
	member.Spec.ArrayMember = &train.ArrayMember{Array: array.ID, Index: 3}
	again := job("sweep-ee66", "sweep again", "ann", 1)
	again.Spec.ArrayMember = member.Spec.ArrayMember
	refused := job("refused", "resnet", "ann", 0)
	refused.State = train.StateRejected
	later := job("refused-too", "mnist", "ann", 0)
	later.State = train.StateRejected
	jobs = append(jobs, refused, later, array, member, again, job("odd", "my/3", "ann", 1))
	for ref, want := range map[string]string{
		"sweep": "sweep-dd55", "sweep-d": "sweep-dd55", "sweep/3": "sweep-dd55-3", "sweep-dd/3": "sweep-dd55-3", "sweep-dd55-3": "sweep-dd55-3", "sweep/4": "", "mnist/3": "", "my/3": "odd", "sweep again": "sweep-ee66",
		"mnist-aa11": "mnist-aa11", "mnist": "mnist-aa22", "mnist-b": "mnist-bb33", "res": "resnet-cc44", "resnet": "refused", "refused": "refused", "my run": "run1", "run1": "run1", "run1-": "run1-more",
		"mnist-aa": "ambiguous", "m": "ambiguous", "nothing": "", "": "",
	} {
		got, found, err := jobref.Resolve(jobs, ref, "ann")
		switch {
		case want == "ambiguous":
			if err == nil || found || !strings.Contains(err.Error(), "mnist-aa22, mnist-aa11") {
				t.Errorf("%q: found %v %s, error %v", ref, found, got.ID, err)
			}
		case err != nil || found != (want != "") || string(got.ID) != want:
			t.Errorf("%q: found %v %q, error %v; want %q", ref, found, got.ID, err, want)
		}
	}
	if got, _, _ := jobref.Resolve(jobs, "mnist", "carol"); got.ID != "mnist-bb33" {
		t.Errorf("the newest of others is mnist-bb33, not %s", got.ID)
	}
}

func TestNearMiss(t *testing.T) {
	jobs := []train.Job{{ID: "resnet-cc44", Spec: train.Spec{Name: "resnet"}}, {ID: "mnist-aa11"}}
	for ref, want := range map[string]string{"resnat": "resnet", "mnist-aa12": "mnist-aa11", "entirely-else": ""} {
		if got := jobref.NearMiss(jobs, ref); got != want {
			t.Errorf("%q: %q, want %q", ref, got, want)
		}
	}
}
