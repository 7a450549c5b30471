package planner

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/tune"
)

// shared is a device with jobs on it in a test's hands. The test plays their code and the node's agent, and has a
// planner take over at every pass.
type shared struct {
	*bench
	cache *cache
	now   time.Time
	step  int
	// mute are the jobs that say nothing, plain those that say nothing of micro-batches.
	mute, plain []train.JobID
	record      tune.Record
}

func newShared(t *testing.T, jobs ...train.JobID) *shared {
	s := &shared{bench: newBench(t), cache: newCache(), now: time.Unix(1_000_000, 0)}
	for _, id := range jobs {
		s.start(id, 1)
	}
	return s
}

func (s *shared) start(id train.JobID, number int) {
	job := admitted(id, 1)
	job.State = train.StateRunning
	s.cache.observeJob(bus.Entry[*train.Job]{Key: string(id), Value: &job}, false)
	s.attempt(train.Attempt{Job: id, Number: number, Node: "n", Devices: []train.DeviceID{"gpu:0"}, Memory: 1 << 30, Phase: train.PhaseRunning, StartedAt: s.now})
}

func (s *shared) attempt(a train.Attempt) {
	s.cache.observeAttempt(bus.Entry[train.Attempt]{Key: string(a.Job), Value: a}, false)
}

func (s *shared) end(id train.JobID, number int) {
	s.attempt(train.Attempt{Job: id, Number: number, Node: "n", Devices: []train.DeviceID{"gpu:0"}, Phase: train.PhaseExited})
}

// pass lets a planner that has just started look at the device, and reads what an agent then reads.
func (s *shared) pass() train.Tuning {
	s.t.Helper()
	planner, err := newTuner(s.ctx, s.bus, slog.New(slog.DiscardHandler), s.cache)
	if err != nil {
		s.t.Fatal(err)
	}
	planner.now = func() time.Time { return s.now }
	if err := planner.pass(s.ctx); err != nil {
		s.t.Fatal(err)
	}
	e, err := planner.records.kv.Get(s.ctx, train.TuningKey("n", "gpu:0"))
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		s.t.Fatal(err)
	}
	s.record = tune.Record(e.Value)
	return e.Value.Tuning
}

// beat publishes a heartbeat of each job on the device, as of the newest wish. Steps of "slow" are disturbed by the
// passes of the others.
func (s *shared) beat() {
	s.t.Helper()
	s.now, s.step = s.now.Add(4*time.Second), s.step+10
	for _, one := range s.cache.tenants()[train.TuningKey("n", "gpu:0")] {
		id := one.attempt.Job
		if slices.Contains(s.mute, id) {
			continue
		}
		b := event.Stepped{Job: id, Attempt: one.attempt.Number, Step: s.step, Steps: 10, StepSeconds: 0.1, MicroBatch: 32}
		for _, other := range s.record.Tenants {
			if id == "slow" && other.Job != id {
				b.StepSeconds += float64(other.MicroBatch) / 64
			}
		}
		if wish, tuned := s.record.Of(id, b.Attempt); tuned && wish.MicroBatch > 0 {
			b.MicroBatch, b.Generation = wish.MicroBatch, s.record.Generation
		}
		if slices.Contains(s.plain, id) {
			b.MicroBatch, b.Generation = 0, 0
		}
		fact := event.Fact{Subject: heartbeatsOf(id), Key: fmt.Sprintf("job/%s/attempt/%d/step/%d/0", id, b.Attempt, s.step), Time: s.now, Source: "nodeagent", Body: b}
		if err := s.bus.Publish(s.ctx, fact); err != nil {
			s.t.Fatal(err)
		}
	}
}

// settle goes on until the round is over.
func (s *shared) settle() train.Tuning {
	s.t.Helper()
	for range 4 * tune.MaxTrials {
		if now := s.pass(); now.Settled.Code != "" {
			return now
		}
		s.beat()
	}
	s.t.Fatalf("the round does not end: %+v", s.record)
	return train.Tuning{}
}

func micro(t train.Tuning, job train.JobID) int {
	for _, one := range t.Tenants {
		if one.Job == job {
			return one.MicroBatch
		}
	}
	return -1
}

// One planner begins what the next goes on with, and so through every trial. Then one of the jobs is killed in the
// middle of a round, and later another one.
func TestJobsOnADeviceAreTuned(t *testing.T) {
	s := newShared(t, "a", "b", "slow")
	s.plain = []train.JobID{"slow"}
	if tuned := s.pass(); tuned.Generation != 0 {
		t.Fatalf("tuned before the jobs have told what they can: %+v", tuned)
	}
	s.beat()
	first := s.pass()
	if micro(first, "a") != 32 || micro(first, "slow") != 0 || len(first.Tenants) != 3 || first.Settled.Code != "" {
		t.Fatalf("it begins with %+v", first)
	}
	s.beat()
	s.beat()
	second := s.pass()
	if second.Tried != 1 || second.Generation <= first.Generation {
		t.Fatalf("after one measurement: %+v", second)
	}

	s.end("b", 1)
	rest := s.pass()
	if len(rest.Tenants) != 2 || rest.Tried != 0 || rest.Settled.Code != "" || rest.Generation <= second.Generation || micro(rest, "a") != 32 {
		t.Fatalf("after a job was killed: %+v", rest)
	}
	settled := s.settle()
	if settled.Settled.Code != tune.CodeTuned || micro(settled, "a") > 4 {
		t.Errorf("settled on %+v; small passes of a disturb the slow one least", settled)
	}
	if again := s.pass(); again.Generation != settled.Generation {
		t.Errorf("what is settled does not stay: %+v", again)
	}

	s.end("slow", 1)
	if alone := s.pass(); alone.Settled.Code != tune.CodeAlone || micro(alone, "a") != 32 {
		t.Errorf("alone: %+v", alone)
	}
	s.end("a", 1)
	if none := s.pass(); none.Generation != 0 {
		t.Errorf("tuned with nothing on the device: %+v", none)
	}
}

// The micro-batch of a job on several devices is left alone, and one of its devices is tuned after the other.
func TestAJobOnSeveralDevicesIsOnlyWatched(t *testing.T) {
	s := newShared(t, "a", "wide")
	s.attempt(train.Attempt{Job: "wide", Number: 1, Node: "n", Devices: []train.DeviceID{"gpu:0", "gpu:1"}, Memory: 1 << 30, Phase: train.PhaseRunning, StartedAt: s.now})
	s.beat()
	first := s.pass()
	if micro(first, "a") != 32 || micro(first, "wide") != 0 || first.Device != "gpu:0" || first.Settled.Code != "" {
		t.Fatalf("it begins with %+v", first)
	}
	key := train.TuningKey("n", "gpu:1")
	other := &tuner{records: ownRecords[contract.TuningRound]{known: map[string]bus.Entry[contract.TuningRound]{
		train.TuningKey("n", "gpu:0"): {Value: contract.TuningRound(s.record)},
	}}}
	if !other.elsewhere(key, s.cache.tenants()[key]) {
		t.Error("both devices are tuned at the same time")
	}
	settled := s.settle()
	other.records.known[train.TuningKey("n", "gpu:0")] = bus.Entry[contract.TuningRound]{Value: contract.TuningRound(s.record)}
	if micro(settled, "wide") != 0 || other.elsewhere(key, s.cache.tenants()[key]) {
		t.Errorf("the other device waits for ever: %+v", settled)
	}
}

func TestNobodyIsWaitedForWithoutEnd(t *testing.T) {
	s := newShared(t, "a", "b", "dead")
	s.mute = []train.JobID{"dead"}
	s.beat()
	if tuned := s.pass(); tuned.Generation != 0 {
		t.Fatalf("tuned before all have spoken: %+v", tuned)
	}
	s.now = s.now.Add(tune.AnswerTimeout)
	s.beat()
	began := s.pass()
	if began.Generation == 0 || micro(began, "dead") != 0 {
		t.Fatalf("a job that never speaks holds up the others: %+v", began)
	}
	s.beat()
	s.beat()
	if tried := s.pass(); tried.Tried != 1 {
		t.Fatalf("%+v", tried)
	}
	// The node's agent falls silent.
	s.now = s.now.Add(tune.AnswerTimeout)
	if settled := s.pass(); settled.Settled.Code != tune.CodeSilence || micro(settled, "a") != 32 {
		t.Errorf("after the deadline: %+v", settled)
	}
}

// A job that compiles for long before its first step is tuned as soon as it reports its steps.
func TestWhoSpeaksLateIsTunedAfterAll(t *testing.T) {
	s := newShared(t, "a", "slow")
	s.plain, s.mute = []train.JobID{"a"}, []train.JobID{"slow"}
	s.now = s.now.Add(tune.AnswerTimeout)
	s.beat()
	settled := s.pass()
	if settled.Settled.Code != tune.CodeFixed {
		t.Fatalf("with nothing to tune: %+v", settled)
	}
	if again := s.pass(); again.Generation != settled.Generation {
		t.Errorf("what is settled does not stay: %+v", again)
	}
	s.plain, s.mute = nil, nil
	s.beat()
	if began := s.pass(); began.Settled.Code != "" || micro(began, "slow") != 32 || micro(began, "a") != 32 {
		t.Errorf("after the first heartbeat: %+v", began)
	}
	settled = s.settle()
	if again := s.pass(); again.Generation != settled.Generation {
		t.Errorf("what is settled does not stay: %+v", again)
	}
}

// Heartbeats of any process of a gang tell that it speaks.
func TestAGangSpeaksWithEachOfItsProcesses(t *testing.T) {
	s := newShared(t, "a", "wide")
	wide := train.Attempt{Job: "wide", Number: 1, Node: "n", Devices: []train.DeviceID{"gpu:0", "gpu:1"}, Memory: 1 << 30, Phase: train.PhaseRunning, StartedAt: s.now}
	s.attempt(wide)
	s.now = s.now.Add(tune.AnswerTimeout)
	s.beat()
	fact := event.Fact{
		Subject: heartbeatsOf("wide"), Key: "job/wide/attempt/1/step/10/1", Time: s.now, Source: "nodeagent",
		Body: event.Stepped{Job: "wide", Attempt: 1, Rank: 1, Step: 10, Steps: 10, StepSeconds: 0.1},
	}
	if err := s.bus.Publish(s.ctx, fact); err != nil {
		t.Fatal(err)
	}
	s.pass()
	for _, one := range s.record.Sharers {
		if one.Silent {
			t.Errorf("%s counts as silent", one.Job)
		}
	}
}

func TestAJobHasItsDeviceUntuned(t *testing.T) {
	s := newShared(t, "a")
	s.beat()
	if tuned := s.pass(); tuned.Generation != 0 {
		t.Errorf("tuned: %+v", tuned)
	}
}

// The batch of a step grows only where the user allows it, its worth is known, and it fits into the job's part of
// the device.
func TestTheEffectiveBatchGrowsOnlyOnRequest(t *testing.T) {
	bytes := train.Memory{FixedBytes: 100, SampleBytes: 10, Points: 2}
	noise := train.Efficiency{Variance: 1000, Square: 1, BaseBatch: 32}
	for name, c := range map[string]struct {
		allowed bool
		model   train.Model
		part    int64
		want    int
	}{
		"not asked for":       {false, train.Model{Memory: &bytes, Efficiency: &noise}, 1 << 30, 32},
		"worth unknown":       {true, train.Model{Memory: &bytes}, 1 << 30, 32},
		"memory unknown":      {true, train.Model{Efficiency: &noise}, 1 << 30, 32},
		"as far as it may":    {true, train.Model{Memory: &bytes, Efficiency: &noise}, 1 << 30, 128},
		"as far as it fits":   {true, train.Model{Memory: &bytes, Efficiency: &noise}, 100 + 10*100, 64},
		"no larger one fits":  {true, train.Model{Memory: &bytes, Efficiency: &noise}, 100 + 10*64, 32},
		"it has ended before": {true, train.Model{Memory: &bytes, Efficiency: &noise}, -1, 32},
	} {
		job := admitted("a", 1)
		job.Spec.TuneEffectiveBatch = c.allowed
		one := tenant{job: &job, batch: job.Spec.BatchSize, model: c.model, attempt: train.Attempt{Job: "a", Number: 1}}
		most := map[train.JobID]int{}
		if one.attempt.Memory = 1 << 30; c.part < 0 {
			most["a"] = 32
		} else {
			one.attempt.Memory = unit.Bytes(c.part)
		}
		s := one.sharer(true, true, most)
		if got := s.Batches[len(s.Batches)-1]; got != c.want || len(s.Gains) != len(s.Batches) || s.Gains[0] != 1 {
			t.Errorf("%s: batches %v worth %v, want up to %d", name, s.Batches, s.Gains, c.want)
		}
		if c.want > 32 && !(s.Gains[len(s.Gains)-1] > 1.5) {
			t.Errorf("%s: worth %v", name, s.Gains)
		}
	}
	job := admitted("a", 1)
	job.Spec.TuneEffectiveBatch, job.StepsTooLarge = true, true
	one := tenant{job: &job, model: train.Model{Memory: &bytes, Efficiency: &noise}, attempt: train.Attempt{Memory: 1 << 30}}
	if got := one.largest(32); got != 32 {
		t.Errorf("it ran out of memory before, on whatever device: up to %d, want 32", got)
	}
}

// How long a step takes without others is what the profiler measured, also where it is news of nothing else.
func TestStepTimesAloneAreKnown(t *testing.T) {
	s := newShared(t, "a", "b")
	device := train.Device{ID: "gpu:0", Kind: train.KindGPU, Model: "M", Driver: "1"}
	s.cache.observeNode(s.now, bus.Entry[train.Node]{Key: "n", Value: train.Node{ID: "n", Devices: []train.Device{device}}}, false)
	met := curve.NewInterferenceRecord(device.Type(), device.Driver, nil)
	see := func() {
		s.cache.observeInterference(bus.Entry[curve.InterferenceRecord]{Key: curve.InterferenceKey(&device), Value: met.Clone()}, false)
	}
	see()
	kind := curve.KindOf(admitted("a", 1).Spec)
	met.Measured(kind, nil, 0.25)
	met.Measured(kind.On(2, 1), nil, 0.4)
	met.Measured(kind.On(2, 2), nil, 0.6)
	see()
	wide := train.Attempt{Job: "a", Number: 1, Node: "n", Devices: []train.DeviceID{"gpu:0", "gpu:1"}}
	if got := s.cache.alone(wide, admitted("a", 1).Spec); got != 0.4 {
		t.Errorf("on two devices it takes %v s alone, want 0.4", got)
	}
	wide.SetPlaces([]train.Part{{Node: "n", Devices: wide.Devices[:1]}, {Node: "m", Devices: wide.Devices[:1]}})
	if got := s.cache.alone(wide, admitted("a", 1).Spec); got != 0.6 {
		t.Errorf("on two nodes it takes %v s alone, want 0.6", got)
	}
	s.beat()
	s.pass()
	for _, one := range s.record.Sharers {
		if one.AloneSeconds != 0.25 { // both run the same program
			t.Errorf("%s takes %v s alone, want 0.25", one.Job, one.AloneSeconds)
		}
	}
	if len(s.record.Sharers) != 2 {
		t.Errorf("tuned are %+v", s.record.Sharers)
	}
}

// The micro-batch of a trial whose experiment chooses it is left alone, and its neighbours are tuned beside it.
func TestTheMicroBatchOfATrialIsNotTuned(t *testing.T) {
	s := newShared(t, "a", "slow", "trial")
	noting(s.cache, s.cache.wishes)(bus.Entry[train.Setting]{Key: "trial", Value: train.Setting{Job: "trial", BatchSize: 32, Values: map[string]float64{"micro_batch": 8}}}, false)
	for round := 0; s.record.Settled.Code == ""; round++ {
		if round > 100 {
			t.Fatalf("never settles: %+v", s.record)
		}
		s.beat()
		for _, one := range s.pass().Tenants {
			if one.Job == "trial" && one.MicroBatch != 0 {
				t.Fatalf("it shall run with %d", one.MicroBatch)
			}
		}
	}
	if s.record.Tried < 2 {
		t.Errorf("settled after %d trials: %+v", s.record.Tried, s.record.Settled)
	}
}
