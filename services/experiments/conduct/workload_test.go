package conduct

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
	"github.com/switchyard-dl/switchyard/services/experiments/profile"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// A change of an epoch's cost makes another workload; a change of the result alone does not.
func TestWorkloadsAreDistinguished(t *testing.T) {
	numbers := func(all ...float64) (values []contract.Value) {
		for _, x := range all {
			values = append(values, contract.Number(x))
		}
		return values
	}
	space := search.Space{
		{Name: "rate", Kind: search.Choice, Values: numbers(0.1, 1)},
		{Name: "momentum", Kind: search.Uniform, Low: 0, High: 1},
		{Name: "width", Kind: search.Choice, Values: numbers(64, 128)},
		{Name: "layers", Kind: search.Int, Low: 1, High: 4},
		{Name: "optimizer", Kind: search.Choice, Values: []contract.Value{contract.Text("sgd"), contract.Text("adam")}},
		{Name: "batch_size", Kind: search.Choice, Values: numbers(32, 64, 128)},
	}
	params := func(rate, momentum, width, layers float64, optimizer string) search.Params {
		return search.Params{
			"rate": contract.Number(rate), "momentum": contract.Number(momentum), "width": contract.Number(width), "layers": contract.Number(layers), "optimizer": contract.Text(optimizer),
		}
	}
	base := experiment(search.Random, file.PipeTune, 48)
	base.Space = space
	of := func(change func(*file.Experiment), p search.Params, batch float64) string {
		e := base
		if change != nil {
			change(&e)
		}
		r := New("exp", e, "", time.Time{})
		return r.workload(p, batch)
	}
	first := params(0.1, 0.5, 64, 1, "sgd")
	known := of(nil, first, 32)
	for _, tc := range []struct {
		name  string
		got   string
		equal bool
	}{
		{"a micro-batch that is tuned, too", of(func(e *file.Experiment) { e.System = append(e.System[:1:1], upTo(file.MicroBatch, 2)) }, first, 32), false},
		{"a power limit that is tuned, too", of(func(e *file.Experiment) { e.System = append(e.System[:1:1], upTo(file.PowerLimit, 2)) }, first, 32), false},
		{"other numbers of cores", of(func(e *file.Experiment) { e.System = []contract.Factor{upTo(file.Cores, 2)} }, first, 32), true},
		{"another rate", of(nil, params(1, 0.5, 64, 1, "sgd"), 32), true},
		{"another momentum", of(nil, params(0.1, 0.9, 64, 1, "sgd"), 32), true},
		{"another width", of(nil, params(0.1, 0.5, 128, 1, "sgd"), 32), false},
		{"more layers", of(nil, params(0.1, 0.5, 64, 2, "sgd"), 32), false},
		{"another optimizer", of(nil, params(0.1, 0.5, 64, 1, "adam"), 32), false},
		{"another batch size", of(nil, first, 64), false},
		{"another folder", of(func(e *file.Experiment) { e.Job.WorkDir = "/other" }, first, 32), false},
		{"another environment", of(func(e *file.Experiment) { e.Job.Env = map[string]string{"OMP_NUM_THREADS": "1"} }, first, 32), false},
		{"another range of devices", of(func(e *file.Experiment) { e.Job.MaxDevices = 4 }, first, 32), false},
		{"more devices", of(func(e *file.Experiment) { e.Job.MinDevices, e.Job.MaxDevices = 2, 2 }, first, 32), false},
		{"the devices that it has anyway", of(func(e *file.Experiment) { e.Job.MinDevices, e.Job.MaxDevices = 1, 1 }, first, 32), true},
		{"other memory", of(func(e *file.Experiment) { e.Job.MainMemoryMiB = 512 }, first, 32), false},
		{"a process for each device", of(func(e *file.Experiment) { e.Job.Launch = train.LaunchPerDevice }, first, 32), false},
		{"other cores, which are tuned", of(func(e *file.Experiment) { e.Job.Cores = 1 }, first, 32), true},
		{"another id and name", of(func(e *file.Experiment) { e.Name = "other" }, first, 32), true},
	} {
		if (tc.got == known) != tc.equal {
			t.Errorf("%s: %s\n%s", tc.name, tc.got, known)
		}
	}
	untuned := func(cores int) string {
		return of(func(e *file.Experiment) {
			e.Job.Cores, e.System = cores, []contract.Factor{{Name: file.MemoryMiB, Values: []float64{2048}}}
		}, first, 32)
	}
	if untuned(1) == untuned(2) {
		t.Error("jobs with other cores, which are not tuned, are one workload")
	}
	rateAlone := func(e *file.Experiment) { e.Costs = []string{"rate"} }
	if stated := of(rateAlone, first, 32); stated != of(rateAlone, params(0.1, 0.5, 128, 2, "adam"), 32) || stated == of(rateAlone, params(1, 0.5, 64, 1, "sgd"), 32) {
		t.Error("what the experiment says of costs does not count")
	}
	r := New("exp", base, "", time.Time{})
	if n := r.workloads(); n != 2*4*2*3 {
		t.Errorf("%g workloads", n)
	}
}

// The environment distinguishes workloads but stays secret: it holds tokens.
func TestTheEnvironmentStaysOutOfTheGroundTruth(t *testing.T) {
	of := func(env map[string]string) string {
		e := experiment(search.Random, file.PipeTune, 1)
		e.Job.Env = env
		r := New("exp", e, "", time.Time{})
		return r.workload(nil, 32)
	}
	known := of(map[string]string{"TOKEN": "hunter2", "THREADS": "1"})
	if strings.Contains(known, "hunter2") || strings.Contains(known, "TOKEN") {
		t.Errorf("the workload reveals its environment: %s", known)
	}
	if again := of(map[string]string{"THREADS": "1", "TOKEN": "hunter2"}); again != known {
		t.Errorf("the same environment is another workload: %s\n%s", again, known)
	}
	for _, env := range []map[string]string{nil, {"TOKEN": "hunter2", "THREADS": "2"}, {"TOKEN": "hunter2\"\n\"THREADS\"=\"1"}, {"TOKEN": "1", "THREADS": "hunter2"}} {
		if other := of(env); other == known {
			t.Errorf("%v is the same workload", env)
		}
	}
}

// A crash between storing the ground truth and storing the record: the same epochs come again, and count once. Learnt
// results can be read elsewhere, also if the program gained system parameters.
func TestWhatWasLearntIsPortable(t *testing.T) {
	var known profile.Store
	for _, more := range [][]contract.Factor{nil, {{Name: file.MicroBatch, Values: []float64{32, 16}}}, {{Name: file.PowerLimit, Values: []float64{300, 200}}}} {
		e := experiment(search.Random, file.PipeTune, 2)
		e.System = append(e.System, more...)
		w := newWorld(t, e)
		w.known = known
		w.run()
		known = w.known.Portable()
	}
	data, err := json.Marshal(known)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := profile.Decode(data); err != nil || len(known.Entries) != 3 {
		t.Errorf("%d workloads: %v", len(known.Entries), err)
	}
}

func TestRepeatedResultsAreLearntOnce(t *testing.T) {
	r := New("exp", experiment(search.Random, file.PipeTune, 1), "", time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC))
	if err := r.Decide(profile.Store{}, r.SubmittedAt); err != nil {
		t.Fatal(err)
	}
	trial := &r.Trials[0]
	trial.Applied = []train.Applied{{Job: trial.Job, Attempt: 1, Generation: 1, At: r.SubmittedAt, Values: trial.Settings[0]}}
	end := func(epoch, attempt int, seconds float64) {
		at := r.SubmittedAt.Add(time.Duration(attempt*epoch) * time.Hour)
		trial.Done = append(trial.Done, contract.TrialEpoch{Epoch: epoch, Attempt: attempt, At: at, Seconds: seconds})
	}
	measured := func(s profile.Store) contract.MeasuredCost { return s.Entries[0].Measured[0] }
	end(1, 1, 10)
	end(2, 1, 20)
	trial.State = search.Paused
	before, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	known := r.Learn(profile.Store{})
	if m := measured(known); m.Cost != 15 || m.Epochs != 2 {
		t.Fatalf("learnt %+v", known.Entries)
	}
	if err := json.Unmarshal(before, &r); err != nil {
		t.Fatal(err)
	}
	trial = &r.Trials[0]
	trial.Learnt = 0
	if diff := cmp.Diff(known, r.Learn(known)); diff != "" || trial.Learnt != 2 {
		t.Errorf("learnt again: %s", diff)
	}
	// An epoch that was lost and trained again is a different one.
	trial.Done = trial.Done[:1]
	trial.Learnt = 1
	trial.Applied = append(trial.Applied,
		train.Applied{Job: trial.Job, Attempt: 2, Generation: 1, At: r.SubmittedAt, Values: trial.Settings[0]})
	end(2, 2, 30)
	if m := measured(r.Learn(known)); m.Epochs != 3 || m.Cost != 20 {
		t.Errorf("learnt %+v", m)
	}
}
