package profiler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// An epoch is a measurement of co-runners only if they trained there the whole time.
func TestEpochsWithTheSameCoRunnersAreMeasured(t *testing.T) {
	gpu, other := deviceKey{"n", "gpu:0"}, deviceKey{"n", "gpu:1"}
	kind := func(family string) curve.Kind { return curve.Kind{Family: family} }
	type epoch struct {
		job         train.JobID
		at, seconds float64
		others      []curve.Kind
		counts      bool
		// comes, leaves: the job comes or leaves, and there is no epoch
		comes, leaves bool
	}
	s := newResidency()
	s.started("far", kind("far"), []deviceKey{other}, after(0))
	for _, e := range []epoch{
		{job: "a", at: 0, comes: true},
		{job: "a", at: 100, seconds: 100, counts: true},
		{job: "b", at: 100, comes: true},
		{job: "a", at: 200, seconds: 100},                                                // b loads
		{job: "b", at: 220, seconds: 100, others: []curve.Kind{kind("a")}, counts: true}, // from 120 on, and a was there
		{job: "a", at: 300, seconds: 100, others: []curve.Kind{kind("b")}, counts: true}, // from 200 on
		{job: "b", at: 320, seconds: 100, others: []curve.Kind{kind("a")}, counts: true},
		{job: "c", at: 350, comes: true},
		{job: "a", at: 380, seconds: 80},
		{job: "c", at: 400, leaves: true},
		{job: "a", at: 440, seconds: 60},                                                // c was there until 400
		{job: "a", at: 500, seconds: 60, others: []curve.Kind{kind("b")}, counts: true}, // and left before this one
		{job: "b", at: 510, leaves: true},
		{job: "a", at: 560, seconds: 60},
		{job: "a", at: 590, seconds: 30}, // too little for a measurement
		{job: "a", at: 620, seconds: 30, counts: true},
		{job: "a", at: 630, leaves: true},
		{job: "a", at: 640, comes: true}, // again
		{job: "a", at: 670, seconds: 30}, // the first epoch is slow
		{job: "a", at: 700, seconds: 30},
		{job: "a", at: 730, seconds: 30, counts: true},
	} {
		switch {
		case e.comes:
			s.started(e.job, kind(string(e.job)), []deviceKey{gpu}, after(e.at))
			continue
		case e.leaves:
			s.ended(e.job, after(e.at))
			continue
		}
		m, counts := s.epochEnded(e.job, after(e.at), time.Time{}, e.seconds, 0.5)
		if counts != e.counts || counts && (m.stepSeconds != 0.5 || !slices.Equal(slices.Concat(m.coRunners...), e.others)) {
			t.Errorf("epoch of %s that ends at %v: %v, %+v", e.job, e.at, counts, m)
		}
	}
	s.ended("a", after(800))
	if len(s.at[gpu]) != 0 {
		t.Errorf("%d intervals are kept for a device without attempts", len(s.at[gpu]))
	}
}

// A job on several devices goes at the pace of the slowest. Its epochs, and those of its co-runners, name every
// possible cause.
func TestCoRunnersOnSeveralDevices(t *testing.T) {
	for nodes, gpus := range map[int][]deviceKey{1: {{"n", "gpu:0"}, {"n", "gpu:1"}}, 2: {{"n", "gpu:0"}, {"m", "gpu:0"}}} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) { seeCoRunners(t, gpus, nodes) })
	}
}

func seeCoRunners(t *testing.T, gpus []deviceKey, nodes int) {
	t.Helper()
	kind := func(family string, devices int) curve.Kind {
		return curve.Kind{Family: family}.On(devices, min(devices, nodes))
	}
	wide := kind("wide", 2)
	type moment struct {
		job train.JobID
		at  float64
		// comes to these devices, or leaves; else an epoch of 100 s ends
		comes     []deviceKey
		leaves    bool
		coRunners [][]curve.Kind
		counts    bool
	}
	s := newResidency()
	for _, m := range []moment{
		{job: "wide", at: 0, comes: gpus},
		{job: "wide", at: 100, counts: true},
		{job: "a", at: 100, comes: gpus[1:]},
		{job: "a", at: 200, coRunners: [][]curve.Kind{{wide}}, counts: true},
		{job: "wide", at: 210, coRunners: [][]curve.Kind{{kind("a", 1)}}, counts: true}, // nothing slows it down on the other
		{job: "b", at: 210, comes: gpus[:1]},
		{job: "b", at: 310}, // a may slow down wide, which then leaves more to b
		{job: "wide", at: 310, coRunners: [][]curve.Kind{{kind("b", 1)}, {kind("a", 1)}}, counts: true},
		{job: "a", at: 310},
		{job: "b", at: 320, leaves: true},
		{job: "wide", at: 420, coRunners: [][]curve.Kind{{kind("a", 1)}}, counts: true},
		{job: "a", at: 410}, // b was there beside wide when this began
		{job: "a", at: 510, coRunners: [][]curve.Kind{{wide}}, counts: true},
		{job: "twin", at: 510, comes: gpus[:1]},
		{job: "twin", at: 620, coRunners: [][]curve.Kind{{wide}}, counts: true},
		{job: "wide", at: 620, coRunners: [][]curve.Kind{{kind("a", 1)}}, counts: true}, // alike on both
		{job: "a", at: 630, leaves: true},
		{job: "twin", at: 640, leaves: true},
		{job: "pair", at: 640, comes: gpus},
		{job: "pair", at: 740, coRunners: [][]curve.Kind{{wide}}, counts: true},
		{job: "wide", at: 740, coRunners: [][]curve.Kind{{kind("pair", 2)}}, counts: true},
	} {
		family := string(m.job)
		if family == "twin" {
			family = "a"
		}
		switch {
		case m.comes != nil:
			s.started(m.job, kind(family, 1), m.comes, after(m.at))
			continue
		case m.leaves:
			s.ended(m.job, after(m.at))
			continue
		}
		got, counts := s.epochEnded(m.job, after(m.at), time.Time{}, 100, 0.5)
		if counts != m.counts || counts && !slices.EqualFunc(got.coRunners, m.coRunners, slices.Equal) {
			t.Errorf("epoch of %s that ends at %v: %v, %+v", m.job, m.at, counts, got)
		}
	}
	s.ended("wide", after(800))
	s.ended("pair", after(900))
	if len(s.at) != 0 {
		t.Errorf("intervals are kept for %d devices without attempts", len(s.at))
	}
}

// While micro-batches are tried, jobs slow each other down as they will not later: an epoch that overlaps the trials
// gives no measurement, nor do those before it.
func TestMeasurementsWaitForTheMicroBatches(t *testing.T) {
	kind := curve.Kind{Family: "a"}
	s := newResidency()
	s.started("a", kind, []deviceKey{{"n", "gpu:0"}}, after(0))
	for _, e := range []struct {
		at, seconds, batchesSince float64
		counts                    bool
	}{
		{at: 100, seconds: 100, counts: true},
		{at: 140, seconds: 40, batchesSince: 100},
		{at: 180, seconds: 40, batchesSince: 180}, // one was tried at its end
		{at: 220, seconds: 40, batchesSince: 190}, // settled during this one
		{at: 260, seconds: 40, batchesSince: 190}, // the 40 s before the trials were with other batches
		{at: 300, seconds: 40, batchesSince: 190, counts: true},
	} {
		if _, counts := s.epochEnded("a", after(e.at), after(e.batchesSince), e.seconds, 0.5); counts != e.counts {
			t.Errorf("epoch that ends at %v counts: %v", e.at, counts)
		}
	}
}

// How jobs slow each other down while micro-batches are tried is no reason to separate them.
func TestTrialsAreNotLearnt(t *testing.T) {
	timeline := shared()
	for i, f := range timeline {
		if e, ok := f.Body.(event.EpochEnded); ok && i < 8 && i > 4 { // the two are beside each other
			e.BatchesSince = after(100*float64(i) - 50)
			timeline[i].Body = e
		}
	}
	for _, m := range teach(t, nil, "1", timeline) {
		for _, e := range m.Known.Samples() {
			if e.Count > 0 {
				t.Errorf("learnt %+v", e)
			}
		}
	}
}

// shared returns the timeline of two jobs on one device, as facts in order.
func shared() []event.Fact {
	admit := func(id train.JobID) event.Fact {
		s := train.Spec{Command: []string{string(id)}, BatchSize: 8, TrainingSetSize: 800, MaxEpochs: 100, AllowSharing: true}.WithDefaults()
		return event.JobFact(id, event.FactAdmitted, "admitted", event.Admitted{Spec: s})
	}
	start := func(id train.JobID) event.Fact {
		return event.JobFact(id, event.FactStarted, "started", event.Started{Attempt: 1, Node: "n", Devices: []train.DeviceID{"gpu:0"}})
	}
	epoch := func(id train.JobID, n int, step float64) event.Fact {
		return event.JobFact(id, event.FactEpochEnded, "epoch", event.EpochEnded{Attempt: 1, EpochsDone: n, EpochSeconds: 100, StepSeconds: step, Devices: 1})
	}
	return []event.Fact{
		admit("a"), start("a"), epoch("a", 1, 1), admit("b"), start("b"), epoch("b", 1, 4), epoch("a", 2, 1.6), epoch("b", 2, 4),
		event.JobFact("a", event.FactSucceeded, "end", event.Succeeded{Attempt: 1}), epoch("b", 3, 2), epoch("b", 4, 2),
		admit("c"), start("c"), event.OnceFact("c", event.FactFailed, "end", event.Failed{Attempt: 1, Exit: train.Exit{Code: 1, LogTail: "torch.OutOfMemoryError: CUDA out of memory."}}),
	}
}

// teach gives an estimator the facts of a timeline, an epoch apart, and returns what it has learned.
func teach(t *testing.T, known map[string]curve.InterferenceRecord, driver string, timeline []event.Fact) map[string]curve.InterferenceRecord {
	t.Helper()
	l := newEstimator()
	for key, m := range known {
		l.interference.records[key] = new(m.Clone())
	}
	l.onNode(bus.Entry[train.Node]{Value: train.Node{ID: "n", Devices: []train.Device{{ID: "gpu:0", Kind: train.KindGPU, Model: "M", Driver: driver}}}}, false)
	for i, f := range timeline {
		data, err := f.Encode()
		if err != nil {
			t.Fatal(err)
		}
		kind, _ := event.Find(f.Subject)
		m := bus.Message{Subject: f.Subject.String(), Parsed: f.Subject, Time: after(100 * float64(i)), Data: data, Source: kind.Publisher, Sequence: uint64(i + 1)}
		if err := l.fact(m); err != nil {
			t.Fatal(err)
		}
	}
	all := map[string]curve.InterferenceRecord{}
	for key, m := range l.interference.records {
		all[key] = m.Clone()
	}
	return all
}

// Work on devices of several types gives no step time of any of them.
func TestOnDevicesOfSeveralTypesNothingIsLearnt(t *testing.T) {
	m := newInterference()
	m.observe(train.Node{ID: "n", Devices: []train.Device{{ID: "gpu:0", Model: "M"}, {ID: "gpu:1", Model: "N"}, {ID: "gpu:2", Model: "M"}}})
	for i, c := range []struct {
		on     []train.DeviceID
		learnt bool
	}{{[]train.DeviceID{"gpu:0"}, true}, {[]train.DeviceID{"gpu:0", "gpu:1"}, false}, {[]train.DeviceID{"gpu:0", "gpu:2"}, true}, {[]train.DeviceID{"gpu:0", "gpu:7"}, false}} {
		var at []deviceKey
		for _, d := range c.on {
			at = append(at, deviceKey{"n", d})
		}
		if r := m.record(at, uint64(i+1)); (r != nil) != c.learnt {
			t.Errorf("on %v: %+v", c.on, r)
		}
	}
}

// The result is the same however often the profiler is killed, and whatever it had stored by then.
func TestFactsCountOnceAcrossRestarts(t *testing.T) {
	timeline := shared()
	want := teach(t, nil, "1", timeline)
	if len(want) != 1 {
		t.Fatalf("%d records", len(want))
	}
	for stored := range timeline {
		before := teach(t, nil, "1", timeline[:stored])
		got := teach(t, before, "1", timeline)
		for key, m := range want {
			other := got[key]
			if d := cmp.Diff(m.Known.Samples(), other.Known.Samples()); d != "" || !cmp.Equal(m.Alone, other.Alone) || !cmp.Equal(m.Open, other.Open) {
				t.Fatalf("after a restart at fact %d: %s\n%+v\n%+v", stored, d, m.Alone, other.Alone)
			}
		}
	}
}

// With another driver old records are a hint, and no past fact counts again.
func TestAnotherDriverBeginsAnew(t *testing.T) {
	timeline := shared()
	old := teach(t, nil, "1", timeline)
	more := append(shared(), event.JobFact("b", event.FactEpochEnded, "epoch", event.EpochEnded{Attempt: 1, EpochsDone: 5, EpochSeconds: 100, StepSeconds: 3, Devices: 1}))
	now := teach(t, old, "2", more)
	fresh, found := now[curve.InterferenceKey(&train.Device{Model: "M", Driver: "2"})]
	if !found || len(now) != 2 {
		t.Fatalf("%d records", len(now))
	}
	if len(fresh.Alone) != 1 || fresh.Alone[0].Count != 1 || fresh.Alone[0].StepSeconds != 3 {
		t.Errorf("alone with the new driver: %+v", fresh.Alone)
	}
	for _, m := range old {
		if !cmp.Equal(m.Known.Samples(), fresh.Known.Samples()) {
			t.Errorf("the hint is %+v, want %+v", fresh.Known.Samples(), m.Known.Samples())
		}
	}
}

func TestTheTimelineOfTwoJobs(t *testing.T) {
	for _, m := range teach(t, nil, "1", shared()) {
		kind := func(id string) curve.Kind {
			return curve.KindOf(train.Spec{Command: []string{id}, BatchSize: 8}.WithDefaults())
		}
		want := []curve.InterferenceSample{
			{KindPair: curve.KindPair{Self: kind("a"), Beside: kind("b")}, Rate: 1 / 1.6, Count: 1, Under: "1"},
			{KindPair: curve.KindPair{Self: kind("b"), Beside: kind("a")}, Rate: 0.5, Count: 1, Under: "1"},
			{KindPair: curve.KindPair{Self: kind("c"), Beside: kind("b")}, OutOfMemory: true, Under: "1"},
			{KindPair: curve.KindPair{Self: kind("b"), Beside: kind("c")}, OutOfMemory: true, Under: "1"},
		}
		if d := cmp.Diff(want, m.Known.Samples()); d != "" {
			t.Error(d)
		}
	}
}

// A job that MPS limits to its share of a device runs out of that share, whatever its co-runners do.
func TestALimitedJobBlamesNoCoRunner(t *testing.T) {
	for level, blames := range map[train.Enforcement]bool{train.EnforcedByMPS: false, train.EnforcedByAdvice: true} {
		timeline := shared()
		last := timeline[len(timeline)-2]
		last.Body = event.Started{Attempt: 1, Node: "n", Devices: []train.DeviceID{"gpu:0"}, Enforcement: level}
		timeline[len(timeline)-2] = last
		for _, m := range teach(t, nil, "1", timeline) {
			known := m.Known.Samples()
			if found := slices.ContainsFunc(known, func(e curve.InterferenceSample) bool { return e.OutOfMemory }); found != blames {
				t.Errorf("held to its part by %s: %+v", level, known)
			}
		}
	}
}

// A job that ran out of memory with larger steps than submitted may fit beside the other with the submitted ones.
func TestLargerStepsBlameNoCoRunner(t *testing.T) {
	exit := train.Exit{Code: 1, LogTail: "torch.OutOfMemoryError: CUDA out of memory."}
	for _, enlarged := range []bool{true, false} {
		for _, end := range []event.Fact{
			event.OnceFact("c", event.FactFailed, "end", event.Failed{Attempt: 1, Exit: exit, Enlarged: enlarged}),
			event.JobFact("c", event.FactAttemptLost, "end", event.AttemptLost{Attempt: 1, Exit: exit, Enlarged: enlarged}),
		} {
			timeline := shared()
			timeline[len(timeline)-1] = end
			for _, m := range teach(t, nil, "1", timeline) {
				known := m.Known.Samples()
				if found := slices.ContainsFunc(known, func(e curve.InterferenceSample) bool { return e.OutOfMemory }); found == enlarged {
					t.Errorf("%s, enlarged %v: %+v", end.Subject.Fact, enlarged, known)
				}
			}
		}
	}
}

// A job whose steps have grown beside others is not slower because of that.
func TestLargerStepsCountAsSeveral(t *testing.T) {
	for _, tunes := range []bool{true, false} {
		spec := train.Spec{Command: []string{"x"}, BatchSize: 8, TrainingSetSize: 800, MaxEpochs: 100, TuneEffectiveBatch: tunes}.WithDefaults()
		for _, m := range teach(t, nil, "1", []event.Fact{
			event.JobFact("x", event.FactAdmitted, "admitted", event.Admitted{Spec: spec}),
			event.JobFact("x", event.FactStarted, "started", event.Started{Attempt: 1, Node: "n", Devices: []train.DeviceID{"gpu:0"}}),
			event.JobFact("x", event.FactEpochEnded, "epoch", event.EpochEnded{Attempt: 1, EpochsDone: 1, EpochSeconds: 100, StepSeconds: 2, Steps: 50, Samples: 800, Devices: 1}),
		}) {
			if want := map[bool]float64{true: 1, false: 2}[tunes]; m.Alone[0].StepSeconds != want {
				t.Errorf("steps of twice the batch, allowed %v, count as %v s, want %v", tunes, m.Alone[0].StepSeconds, want)
			}
		}
	}
}

// Before its first report, a job of a known family gets memory according to the needs of others with other batches.
func TestMemoryIsBorrowedFromTheFamily(t *testing.T) {
	l := newEstimator()
	admit := func(id train.JobID, batch int) {
		s := train.Spec{Command: []string{"x"}, BatchSize: batch, TrainingSetSize: 800, MaxEpochs: 100}.WithDefaults()
		feed(t, l, event.JobFact(id, event.FactAdmitted, "admitted", event.Admitted{Spec: s}))
	}
	for id, gib := range map[train.JobID]int{"small": 3, "large": 5} {
		admit(id, map[train.JobID]int{"small": 10, "large": 20}[id])
		feed(t, l, event.JobFact(id, event.FactEpochEnded, "epoch", event.EpochEnded{EpochsDone: 1, EpochSeconds: 3, MemoryBytes: unit.Bytes(gib) * unit.GiB, Devices: 1}))
	}
	admit("new", 40)
	out, known := l.update("new")
	if !known || out.model.Memory == nil || unit.Bytes(out.model.Memory.Bytes(40)).String() != "9.0 GiB" {
		t.Errorf("memory %+v, want 1 GiB and 0.2 GiB per sample", out.model.Memory)
	}
}
