package learn

import (
	"math"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// jobOf is an admitted job of a sweep.
func jobOf(id train.JobID, rate string) *Job {
	s := spec()
	s.Command = []string{"python3", "train.py", "--lr", rate}
	return New(id, s, anyModel)
}

// trained runs a job on one device for some epochs of 100 steps.
func trained(j *Job, epochs int, epochSeconds float64) *Job {
	j.started(after(0), &event.Started{Attempt: 1, Devices: []train.DeviceID{"cpu:0"}})
	for e := 1; e <= epochs; e++ {
		j.epochEnded(after(epochSeconds*float64(e)), &event.EpochEnded{Attempt: 1, EpochsDone: e, EpochSeconds: epochSeconds, Steps: 100, Devices: 1})
	}
	return j
}

func TestJobsTeachTheirFamilyAtOnce(t *testing.T) {
	var library Library
	first, waiting := trained(jobOf("first", "0.1"), 1, 20), jobOf("waiting", "0.3")
	if library.Lend(waiting) {
		t.Fatal("lent before anybody taught")
	}
	if !library.Learn(first) {
		t.Fatal("the first epoch of a family taught nothing")
	}
	if library.Learn(first) {
		t.Error("the same epoch taught twice")
	}
	if !library.Lend(waiting) {
		t.Fatal("a running job taught one that waits nothing")
	}
	m := waiting.Model()
	if got := m.Speed.StepSeconds(waiting.Spec.On(1, 1)); math.Abs(got-0.2) > 1e-9 || m.EpochsSeen != 0 || m.StepsSeen != 0 {
		t.Errorf("%v s a step after %d epochs and %v steps, want 0.2 and no evidence of its own", got, m.EpochsSeen, m.StepsSeen)
	}
	if e := m.Speed.RelativeError(waiting.Spec.On(1, 1)); e < 0.3 {
		t.Errorf("error %v of a time of a job with other flags", e)
	}
	stranger := New("stranger", spec(), anyModel)
	if library.Lend(stranger) {
		t.Error("lent to a job without a program")
	}
}

func TestAWholeRunTeachesHowLongOthersTake(t *testing.T) {
	var library Library
	// Ten epochs were declared; the loss had converged after four, in 80 s.
	first := trained(jobOf("first", "0.1"), 4, 20)
	first.Take(after(80), &event.Succeeded{Attempt: 1, EpochsDone: 4})
	library.Learn(first)
	if !library.Succeeded(first) {
		t.Fatal("a run taught nothing")
	}
	left := func(j *Job) train.Span {
		library.Lend(j)
		span, known := j.Model().RemainingSeconds(j.Spec.On(1, 1), 0, j.Spec.StopRule(), j.Spec.StepsIn)
		if !known {
			t.Fatal("no prediction")
		}
		return span
	}
	twin, kin := left(jobOf("twin", "0.1")), left(jobOf("kin", "0.3"))
	if math.Abs(twin.Expected-80) > 1e-6 || math.Abs(kin.Expected-80) > 1e-6 {
		t.Errorf("predicted %v and %v, want the 80 s that the whole run took", twin, kin)
	}
	if !(kin.Low < twin.Low && twin.Low < 80 && 80 < twin.High && twin.High < kin.High) {
		t.Errorf("a twin's interval %v is not within that of a job with other flags %v", twin, kin)
	}
	// A job whose own steps take twice as long takes twice as long.
	slow := jobOf("slow", "0.5")
	slow.started(after(0), &event.Started{Attempt: 1, Devices: []train.DeviceID{"cpu:0"}})
	slow.Stepped(after(4), event.Stepped{Attempt: 1, StepSeconds: 0.4, Steps: 10, Devices: 1})
	if got := left(slow); math.Abs(got.Expected-160) > 1e-6 {
		t.Errorf("predicted %v, want 160 s", got)
	}
	// Code that reports nothing still teaches how long it ran.
	opaque := jobOf("opaque", "0.1")
	opaque.Spec.Family = "opaque"
	opaque.started(after(0), &event.Started{Attempt: 1, Devices: []train.DeviceID{"cpu:0"}})
	opaque.Take(after(120), &event.Succeeded{Attempt: 1})
	library.Succeeded(opaque)
	next := jobOf("next", "0.1")
	next.Spec.Family = "opaque"
	if got := left(next); math.Abs(got.Expected-120) > 1e-6 {
		t.Errorf("predicted %v, want 120 s", got)
	}
}

// Times on other devices count only until something has run on the job's own.
func TestTheOwnTypeOfDeviceGoesFirst(t *testing.T) {
	var library Library
	on := func(device string, id train.JobID, epochSeconds float64) {
		j := jobOf(id, "0.1")
		j.deviceOf = func(train.NodeID, train.DeviceID) train.Device { return train.Device{Model: device} }
		library.Learn(trained(j, 1, epochSeconds))
	}
	on("a100", "fast", 10)
	job := jobOf("job", "0.1")
	job.deviceOf = func(train.NodeID, train.DeviceID) train.Device { return train.Device{Model: "t4"} }
	step := func() float64 {
		library.Lend(job)
		return job.Model().Speed.StepSeconds(job.Spec.On(1, 1))
	}
	job.started(after(0), &event.Started{Attempt: 1, Devices: []train.DeviceID{"cpu:0"}})
	if got := step(); math.Abs(got-0.1) > 1e-9 {
		t.Errorf("%v s a step, want the 0.1 s of another device", got)
	}
	on("t4", "slow", 50)
	if got := step(); math.Abs(got-0.5) > 1e-9 {
		t.Errorf("%v s a step, want the 0.5 s of the job's type of device", got)
	}
}
