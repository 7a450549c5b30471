package conduct

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// One core is better for small batches here: pipetune finds that out during training, v1 never does, and both end with
// the same model.
func TestPipelinedTuningSavesTime(t *testing.T) {
	worlds := map[contract.ExperimentMode]*world{}
	for _, mode := range file.Modes() {
		w := newWorld(t, experiment(search.Random, mode, 6))
		w.cost = func(_, cores float64) float64 { return 10 + 5*cores }
		w.busy = 0.6 // of two cores: one is known to suffice
		w.run()
		worlds[mode] = w
	}
	v1, own := worlds[file.V1], worlds[file.PipeTune]
	if v1.trained != 54 || own.trained != 54 {
		t.Errorf("v1 trained %d epochs, pipetune %d: want 54 each", v1.trained, own.trained)
	}
	before, after := v1.record.EndedAt.Sub(v1.record.SubmittedAt), own.record.EndedAt.Sub(own.record.SubmittedAt)
	if saved := 1 - after.Seconds()/before.Seconds(); saved < 0.2 {
		t.Errorf("pipetune takes %s, v1 %s: saved %.0f %%, want most of 25 %%", after, before, 100*saved)
	}
	a, first, _ := v1.record.Best()
	b, second, _ := own.record.Best()
	if a.ID != b.ID || first != second {
		t.Errorf("best: trial %d with %g and trial %d with %g", a.ID, first, b.ID, second)
	}
	// The first trial's findings are known to those after it.
	for _, trial := range own.record.Trials[2:] {
		if trial.Settings[0][file.Cores] != 1 {
			t.Errorf("trial %d begins with %v", trial.ID, trial.Settings)
		}
	}
	for _, trial := range worlds[file.V2].record.Trials {
		cores, _ := trial.Params[file.Cores].Float()
		if len(trial.Settings) != 1 || trial.Settings[0][file.Cores] != cores {
			t.Errorf("v2, trial %d: %v with %v", trial.ID, trial.Settings, trial.Params)
		}
	}
}

// A useless change costs little: the rule's bound of 3 % holds over the whole experiment.
func TestPipelinedTuningCostsLittle(t *testing.T) {
	seconds := map[contract.ExperimentMode]float64{}
	for _, mode := range []contract.ExperimentMode{file.V1, file.PipeTune} {
		w := newWorld(t, experiment(search.Random, mode, 6))
		w.cost = func(_, cores float64) float64 { return 20 / cores }
		w.busy = 2
		w.run()
		seconds[mode] = w.record.EndedAt.Sub(w.record.SubmittedAt).Seconds()
	}
	if seconds[file.PipeTune] > 1.03*seconds[file.V1] {
		t.Errorf("pipetune takes %g s, v1 %g s", seconds[file.PipeTune], seconds[file.V1])
	}
}

// Trials pause exactly at their rungs, and continue from there.
func TestTrialsPauseAndGoOn(t *testing.T) {
	w := newWorld(t, experiment(search.ASHA, file.V1, 9))
	w.run()
	rungs, whole := map[int]int{}, 0
	for _, trial := range w.record.Trials {
		rungs[trial.EpochsDone()]++
		if trial.State == search.Ended {
			whole++
		} else if trial.State != search.Stopped || trial.Reason != "others were better" {
			t.Errorf("trial %d: %s, %q", trial.ID, trial.State, trial.Reason)
		}
	}
	sum := 0
	for epochs, n := range rungs {
		sum += epochs * n
		if epochs != 1 && epochs != 3 && epochs != 9 {
			t.Errorf("%d trials have %d epochs", n, epochs)
		}
	}
	if whole == 0 || w.trained != sum {
		t.Errorf("%d trials were trained to their end, %d epochs in all, %d of them count", whole, w.trained, sum)
	}
	if best, _, ok := w.record.Best(); !ok || best.State != search.Ended {
		t.Errorf("best %+v", best)
	}
}

// Interruptions anywhere do not change the result.
func TestKillsChangeNothing(t *testing.T) {
	for _, algorithm := range []contract.SearchAlgorithm{search.Random, search.ASHA, search.Hyperband, search.GP} {
		e := experiment(algorithm, file.PipeTune, 6)
		e.Concurrency = 2
		var records [2][]byte
		for i, killed := range []bool{false, true} {
			w := newWorld(t, e)
			w.killed, w.busy = killed, 0.9
			w.run()
			data, err := json.Marshal(w.record.Trials)
			if err != nil {
				t.Fatal(err)
			}
			records[i] = data
		}
		if diff := cmp.Diff(string(records[0]), string(records[1])); diff != "" {
			t.Errorf("%s (-alive +killed):\n%s", algorithm, diff)
		}
	}
}

// A recurring job is recognised: one trial with the best parameters, at the best setting from its first epoch on, and
// no probes.
func TestRecurringExperimentsRunOneTrial(t *testing.T) {
	e := experiment(search.Random, file.PipeTune, 6)
	e.Group = "nightly"
	first := newWorld(t, e)
	first.cost, first.busy = func(_, cores float64) float64 { return 10 + 5*cores }, 0.6
	first.run()
	best, score, _ := first.record.Best()
	again := newWorld(t, e)
	again.cost, again.known = first.cost, first.known
	again.record.Recur([]Record{first.record})
	again.run()
	trials := again.record.Trials
	if len(trials) != 1 || len(trials[0].Settings) != 1 || trials[0].Settings[0][file.Cores] != 1 {
		t.Fatalf("trials %+v", trials)
	}
	if _, got, _ := again.record.Best(); got != score || !cmp.Equal(trials[0].Params, best.Params, cmp.AllowUnexported(contract.Value{})) {
		t.Errorf("%v came to %g, want %v and %g", trials[0].Params, got, best.Params, score)
	}
	most := 100.0
	for name, change := range map[string]func(*file.Experiment){
		"job":        func(e *file.Experiment) { e.Job.TrainingSetSize++ },
		"constraint": func(e *file.Experiment) { e.Constraints = []contract.Constraint{{Metric: "memory_mib", Max: &most}} },
	} {
		other := e
		change(&other)
		changed := newWorld(t, other)
		if changed.record.Recur([]Record{first.record}); changed.record.Recurs != nil {
			t.Errorf("another %s is taken for the same", name)
		}
	}
}

// A trial begins only while the earlier ones have not used up the budget, whatever the concurrency.
func TestBudgets(t *testing.T) {
	for _, concurrency := range []int{1, 6} {
		e := experiment(search.Random, file.V1, 6)
		e.Budget.Epochs, e.Concurrency = 20, concurrency
		w := newWorld(t, e)
		w.run()
		if len(w.record.Trials) != 3 || w.record.State != Finished || w.record.Message != "the budget of 20 epochs is used up" {
			t.Errorf("%d at a time: %d trials, %s, %q", concurrency, len(w.record.Trials), w.record.State, w.record.Message)
		}
	}
}

// The next trial takes the place of a stopped one, even if it was the only place.
func TestStoppedTrialsMakeRoom(t *testing.T) {
	e := experiment(search.Grid, file.V1, 6)
	e.Space = search.Space{{Name: "rate", Kind: search.Choice, Values: []contract.Value{contract.Number(0.1), contract.Number(0.01), contract.Number(0.02), contract.Number(0.2)}}}
	e.Search.Median = &contract.MedianStopping{GraceEpochs: 1, Trials: 1}
	w := newWorld(t, e)
	w.run()
	var states []contract.TrialState
	for _, trial := range w.record.Trials {
		states = append(states, trial.State)
	}
	want := []contract.TrialState{search.Ended, search.Stopped, search.Stopped, search.Ended}
	if diff := cmp.Diff(want, states); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}

// Epochs that a stopped or failed trial did not train are left for others.
func TestBudgetsCountWhatWasTrained(t *testing.T) {
	// 9 epochs, then trials that are stopped after the first, then one that would train 9.
	for budget, trials := range map[int]int{11: 3, 12: 4} {
		e := experiment(search.Grid, file.V1, 6)
		e.Space = search.Space{{Name: "rate", Kind: search.Choice, Values: []contract.Value{contract.Number(0.1), contract.Number(0.01), contract.Number(0.02), contract.Number(0.2)}}}
		e.Search.Median = &contract.MedianStopping{GraceEpochs: 1, Trials: 1}
		e.Budget.Epochs = budget
		w := newWorld(t, e)
		w.run()
		if n := len(w.record.Trials); n != trials {
			t.Errorf("%d epochs: %d trials after %d epochs, want %d", budget, n, w.trained, trials)
		}
	}
	e := experiment(search.Random, file.V1, 3)
	e.Budget.Epochs = 9
	w := newWorld(t, e)
	r := &w.record
	if err := r.Decide(w.known, w.now); err != nil {
		t.Fatal(err)
	}
	r.JobEnded(r.Trials[0].Job, train.StateRejected, "no such folder", w.now)
	if err := r.Decide(w.known, w.now); err != nil || len(r.Trials) != 2 {
		t.Errorf("after a trial that was rejected: %d trials, %s, error %v", len(r.Trials), r.Message, err)
	}
}

// A trial that fails has no result; the others go on.
func TestFailures(t *testing.T) {
	r := newWorld(t, experiment(search.Random, file.V1, 2)).record
	decide := func() {
		t.Helper()
		if err := r.Decide(r.Learn(newWorld(t, r.experiment()).known), r.SubmittedAt); err != nil {
			t.Fatal(err)
		}
	}
	decide()
	r.JobEnded(r.Trials[0].Job, train.StateRejected, "no such folder", r.SubmittedAt)
	decide()
	if len(r.Trials) != 2 || r.Trials[0].State != search.Failed || r.Trials[0].Reason != "no such folder" {
		t.Fatalf("trials %+v", r.Trials)
	}
	r.JobEnded(r.Trials[1].Job, train.StateFailed, "out of memory", r.SubmittedAt)
	decide()
	if r.State != Finished || r.Message != "no trial has a result" {
		t.Errorf("%s, %q", r.State, r.Message)
	}
}

func TestStop(t *testing.T) {
	r := newWorld(t, experiment(search.Random, file.V1, 6)).record
	if err := r.Decide(newWorld(t, r.experiment()).known, r.SubmittedAt); err != nil {
		t.Fatal(err)
	}
	r.Stop("stopped by ann", r.SubmittedAt)
	if jobs := r.Submissions(); len(jobs) != 1 {
		t.Errorf("submissions %+v: what was not submitted cannot be cancelled", jobs)
	}
	facts := r.Cancellations()
	if r.State != Stopped || len(facts) != 1 || facts[0].Key != "job/exp-t0/cancel" {
		t.Fatalf("%s, %+v", r.State, facts)
	}
	var names []string
	for _, f := range r.Unpublished() {
		names = append(names, f.Key)
	}
	want := []string{"tune/exp/trial/0/started/9", "tune/exp/trial/0/stopped/9", "tune/exp/stopped"}
	if diff := cmp.Diff(want, names); diff != "" || len(r.Unpublished()) != 0 {
		t.Errorf("reported (-want +got):\n%s, and then %d more", diff, len(r.Unpublished()))
	}
}

// The objective per joule waits for the ledger, but not for ever.
func TestEnergyIsWaitedFor(t *testing.T) {
	e := experiment(search.Random, file.V1, 1)
	e.Objective.Per, e.Job.MaxEpochs, e.Search.MaxEpochs = contract.PerEnergy, 1, 1
	for _, joules := range []float64{0, 50} {
		r := New("exp", e, "", time.Now().UTC())
		if err := r.Decide(newWorld(t, e).known, r.SubmittedAt); err != nil {
			t.Fatal(err)
		}
		job, at := r.Trials[0].Job, r.SubmittedAt.Add(time.Second)
		r.EpochEnded(job,
			event.EpochEnded{Attempt: 1, EpochsDone: 1, EpochSeconds: 1, Metrics: map[string]float64{"accuracy": 0.5}},
			at)
		r.JobEnded(job, train.StateSucceeded, "", at)
		if r.Trials[0].State != search.Running {
			t.Fatalf("%s before the ledger has spoken", r.Trials[0].State)
		}
		var progress train.EnergyProgress
		if joules > 0 {
			progress.Epochs = []train.EpochEnergy{{Attempt: 1, EpochsDone: 1, Energy: 50_000_000}}
		}
		r.Metered(job, progress, train.Account{Methods: []string{"modelled"}, Final: true}, at)
		results, err := r.Results(&r.Trials[0])
		switch {
		case r.Trials[0].State != search.Ended || !r.Trials[0].Modelled:
			t.Errorf("%+v", r.Trials[0])
		case joules == 0 && err == nil:
			t.Errorf("unmeasured energy counts as a result: %+v", results)
		case joules > 0 && (len(results) != 1 || results[0].Score != 0.01):
			t.Errorf("results %+v, error %v", results, err)
		}
	}
}

// The energy of a trial has what its job used after the last epoch, too; its results have what it had used by then.
func TestTheEnergyOfATrialIsThatOfItsJob(t *testing.T) {
	e := experiment(search.Random, file.V1, 1)
	r := New("exp", e, "", time.Now().UTC())
	if err := r.Decide(newWorld(t, e).known, r.SubmittedAt); err != nil {
		t.Fatal(err)
	}
	job, at := r.Trials[0].Job, r.SubmittedAt.Add(time.Second)
	r.EpochEnded(job, event.EpochEnded{Attempt: 1, EpochsDone: 1, EpochSeconds: 1, Metrics: map[string]float64{"accuracy": 0.5}}, at)
	r.JobEnded(job, train.StateSucceeded, "", at)
	progress := train.EnergyProgress{Epochs: []train.EpochEnergy{{Attempt: 1, EpochsDone: 1, Energy: 50 * unit.Joule}}}
	r.Metered(job, progress, train.Account{Energy: 80 * unit.Joule, Final: true}, at)
	if o, row := r.Outcome(), r.Rows()[0]; o.EnergyJoules != 80 || row.EnergyJoules != 80 || r.trialEnded(&r.Trials[0]).EnergyJoules != 80 {
		t.Errorf("outcome %+v, row %+v", o, row)
	}
	if results := (*contract.ExperimentRecord)(&r).Results(&r.Trials[0]); len(results) != 1 || results[0].Joules != 50 {
		t.Errorf("%+v", results)
	}
}

// A trial that ends before its first epoch has used energy, too. The experiment waits until its account is final.
func TestATrialWithoutAnEpochHasUsedEnergy(t *testing.T) {
	e := experiment(search.Random, file.V1, 1)
	r := New("exp", e, "", time.Now().UTC())
	if err := r.Decide(newWorld(t, e).known, r.SubmittedAt); err != nil {
		t.Fatal(err)
	}
	job, at := r.Trials[0].Job, r.SubmittedAt.Add(time.Second)
	r.Started(job, at)
	r.JobEnded(job, train.StateFailed, "the program ended with status 1", at.Add(time.Hour))
	if err := r.Decide(newWorld(t, e).known, at.Add(time.Hour)); err != nil || !r.Over() || r.Settled() {
		t.Fatalf("%s, settled %t, error %v", r.State, r.Settled(), err)
	}
	for _, account := range []train.Account{{Energy: 30 * unit.Joule}, {Energy: 80 * unit.Joule, Final: true}} {
		r.Metered(job, train.EnergyProgress{}, account, at.Add(time.Hour+time.Second))
		if row := r.Rows()[0]; row.EnergyJoules != account.Energy.Joules() || r.Settled() != account.Final {
			t.Errorf("%+v, settled %t, of the account %+v", row, r.Settled(), account)
		}
	}
}

// A trial that reached its rung pauses even without any meter.
func TestPausingWaitsForEnergyAWhile(t *testing.T) {
	e := experiment(search.ASHA, file.V1, 2)
	e.Objective.Per = contract.PerEnergy
	r := New("exp", e, "", time.Now().UTC())
	if err := r.Decide(newWorld(t, e).known, r.SubmittedAt); err != nil {
		t.Fatal(err)
	}
	trial, at := &r.Trials[0], r.SubmittedAt.Add(time.Second)
	r.EpochEnded(trial.Job,
		event.EpochEnded{Attempt: 1, EpochsDone: 1, EpochSeconds: 1, Metrics: map[string]float64{"accuracy": 0.5}}, at)
	for _, test := range []struct {
		after time.Duration
		want  contract.TrialState
	}{{energyPatience, search.Running}, {energyPatience + time.Second, search.Paused}} {
		if r.Metered(trial.Job, train.EnergyProgress{}, train.Account{}, at.Add(test.after)); trial.State != test.want {
			t.Errorf("%s after %s, want %s", trial.State, test.after, test.want)
		}
	}
	if err := r.Decide(newWorld(t, e).known, at.Add(time.Hour)); err != nil || len(r.Trials) != 2 {
		t.Errorf("%d trials, error %v: the next one does not begin", len(r.Trials), err)
	}
}

// A parameter that cannot change while a trial runs is not probed; another parameter is.
func TestFixedParametersAreNotProbed(t *testing.T) {
	e := experiment(search.Random, file.PipeTune, 4)
	e.System = append(e.System, contract.Factor{Name: file.MemoryMiB, Values: []float64{4096, 8192}, Fixed: true})
	w := newWorld(t, e)
	w.cost = func(_, cores float64) float64 { return 10 + 5*cores }
	w.run()
	tried := map[float64]bool{}
	for _, trial := range w.record.Trials {
		for _, s := range trial.Settings {
			if tried[s[file.Cores]] = true; s[file.MemoryMiB] != 4096 {
				t.Errorf("trial %d was to have %v", trial.ID, s)
			}
		}
	}
	if len(tried) != 2 {
		t.Errorf("cores %v were tried", tried)
	}
}

// Joules and seconds are not compared, and joules not yet reported are unknown.
func TestCostsHaveAUnit(t *testing.T) {
	e := experiment(search.Random, file.PipeTune, 1)
	e.Objective.Per = contract.PerEnergy
	r := New("exp", e, "", time.Now().UTC())
	if err := r.Decide(newWorld(t, e).known, r.SubmittedAt); err != nil {
		t.Fatal(err)
	}
	trial := &r.Trials[0]
	trial.Done = []contract.TrialEpoch{{Epoch: 1, Seconds: 10, Joules: 100}, {Epoch: 2, Seconds: 11}, {Epoch: 3, Seconds: 12, Joules: 330}, {Epoch: 4, Seconds: 13, Joules: 450}, {Epoch: 5, Seconds: 14}}
	costs := func() (all []float64) {
		for i := range trial.Done {
			all = append(all, r.cost(trial, i))
		}
		return all
	}
	measured := r.pipelined(trial, newWorld(t, e).known).Workload
	if diff := cmp.Diff([]float64{0, 0, 0, 120, 0}, costs()); diff != "" {
		t.Errorf("joules (-want +got):\n%s", diff)
	}
	trial.Modelled = true
	if diff := cmp.Diff([]float64{10, 11, 12, 13, 14}, costs()); diff != "" {
		t.Errorf("seconds (-want +got):\n%s", diff)
	}
	if modelled := r.pipelined(trial, newWorld(t, e).known).Workload; modelled == measured {
		t.Errorf("workload %s in joules and in seconds", modelled)
	}
	again := New("again", e, "", time.Now().UTC())
	if again.Recurs = (&contract.Recurrence{Modelled: true}); again.unit() != InSeconds {
		t.Error("what recurs does not find what was learnt in seconds")
	}
}

// Parameters that need a restart are probed if the remaining epochs repay the restart, and an epoch counts for the
// values it ran with.
func TestRestartsAreProbedWhereTheyAreRepaid(t *testing.T) {
	for name, test := range map[string]struct {
		restart time.Duration
		want    float64
	}{"cheap": {time.Second / 4, 1}, "dear": {time.Hour, 2}} {
		for _, killed := range []bool{false, true} {
			w := newWorld(t, experiment(search.Random, file.PipeTune, 2))
			w.killed, w.restart, w.restarts, w.busy = killed, test.restart, []string{file.Cores}, 0.1
			w.cost = func(_, cores float64) float64 { return 10 + 5*cores }
			w.run()
			last := w.record.Trials[1]
			if got := last.Setting()[file.Cores]; got != test.want {
				t.Errorf("%s, killed %t: the last trial ends with %g cores, want %g", name, killed, got, test.want)
			}
			if test.want == 2 {
				continue
			}
			if w.restarted == 0 || w.record.changes()[file.Cores] != test.restart.Seconds() {
				t.Errorf("%d restarts, taken to cost %v", w.restarted, w.record.changes())
			}
			for _, m := range w.known.Records()[0].Measured {
				if want := 10 + 5*m.Setting[file.Cores]; math.Abs(m.Cost-want) > 1e-6 {
					t.Errorf("an epoch with %g cores is taken to cost %g s, want %g", m.Setting[file.Cores], m.Cost, want)
				}
			}
		}
	}
}

// A parameter that cannot change during a run does not keep the others from being tuned; a parameter whose every value
// is refused stays at its default.
func TestRefusedParametersKeepTheirDefaults(t *testing.T) {
	for _, refused := range [][]string{{file.MemoryMiB}, {file.Cores, file.MemoryMiB}} {
		e := experiment(search.Random, file.PipeTune, 6)
		e.System = append(e.System, contract.Factor{Name: file.MemoryMiB, Values: []float64{4096, 8192, 2048}})
		w := newWorld(t, e)
		w.cost, w.busy, w.refused = func(_, cores float64) float64 { return 10 + 5*cores }, 0.6, refused
		w.run()
		last := w.record.Trials[5]
		cores := 1.0
		if len(refused) == 2 {
			cores = 2
		}
		want := contract.SettingValues{file.Cores: cores, file.MemoryMiB: 4096}
		if !last.Setting().Equal(want) {
			t.Errorf("%v are refused: the last trial ends with %v, want %v", refused, last.Setting(), want)
		}
		known := w.known.Records()
		if len(known) != 1 || len(known[0].Measured) == 0 || !known[0].Measured[0].Setting.Equal(known[0].Default) {
			t.Errorf("%v are refused: learnt %+v", refused, known)
		}
	}
}

// A paused trial is not restarting: that time is not counted as a price.
func TestAPauseIsNoPriceOfARestart(t *testing.T) {
	r := newWorld(t, experiment(search.ASHA, file.PipeTune, 9)).record
	at := func(seconds int) time.Time { return r.SubmittedAt.Add(time.Duration(seconds) * time.Second) }
	r.Trials = []contract.Trial{{Job: "exp-t0", Epochs: 2, State: search.Running, Settings: []contract.SettingValues{{file.Cores: 2}, {file.Cores: 1}, {file.Cores: 2}}}}
	epoch := func(attempt, n, ends int) {
		r.EpochEnded("exp-t0", event.EpochEnded{Attempt: attempt, EpochsDone: n, EpochSeconds: 10}, at(ends))
	}
	leaves := func(attempt int, generation uint64) {
		r.Retuned(train.Applied{Job: "exp-t0", Attempt: attempt, Generation: generation, Restarts: []string{file.Cores}})
	}
	epoch(1, 1, 10)
	leaves(1, 2)
	epoch(1, 2, 20)
	r.Trials[0].State, r.Trials[0].Epochs = search.Running, 9
	epoch(2, 3, 3600)
	leaves(2, 3)
	epoch(2, 4, 3610)
	epoch(3, 5, 3625)
	if got := r.changes()[file.Cores]; got != 5 {
		t.Errorf("a restart is taken to cost %g s, want 5", got)
	}
}

// More cores than a job has slots are refused, and the job stays at its cores: its epochs say nothing about cores it
// did not run on, except during the change.
func TestMoreCoresThanSlotsTeachNothing(t *testing.T) {
	e := experiment(search.Random, file.PipeTune, 6)
	e.System = []contract.Factor{{Name: file.Cores, Values: []float64{4, 2, 1}}}
	w := newWorld(t, e)
	w.slots, w.busy, w.cost = 2, 0.6, func(_, cores float64) float64 { return 20 - 5*cores }
	w.run()
	changes := 0
	for _, trial := range w.record.Trials {
		changes += len(trial.Settings) - 1
	}
	if changes < 2 {
		t.Fatalf("%d changes: the test shows nothing", changes)
	}
	for _, m := range w.known.Records()[0].Measured {
		if want := 20 - 5*min(m.Setting[file.Cores], w.slots); math.Abs(m.Cost-want) > 0.1 {
			t.Errorf("an epoch on %g cores is taken to cost %g s, want %g", m.Setting[file.Cores], m.Cost, want)
		}
	}
}

// The submission fixes the devices: an epoch has the number that its trial was searched with.
func TestSearchedDevicesAreNoFailure(t *testing.T) {
	e := experiment(search.Grid, file.V2, 2)
	e.Space = nil
	e.System = []contract.Factor{{Name: file.Devices, Values: []float64{1, 2}}}
	w := newWorld(t, e)
	w.cost, w.factor = func(float64, float64) float64 { return 10 }, file.Devices
	w.run()
	known := w.known.Records()
	if len(w.record.Trials) != 2 || len(known) != 1 || len(known[0].Failed) != 0 || len(known[0].Measured) != 2 {
		t.Errorf("%d trials taught %+v", len(w.record.Trials), known)
	}
}

// The first epochs have the best ratio of result to time: a trial that stopped after one of them is no better than a
// trial trained to its end.
func TestBestOfWhatIsDividedByTime(t *testing.T) {
	e := experiment(search.ASHA, file.V1, 9)
	e.Objective.Per = contract.PerTime
	w := newWorld(t, e)
	w.value = func(rate float64, epoch int) float64 { return rate * math.Sqrt(float64(epoch)) }
	w.run()
	best, score, ok := w.record.Best()
	if !ok || best.State != search.Ended || best.EpochsDone() != 9 {
		t.Fatalf("best %+v", best)
	}
	for _, other := range w.record.Trials {
		results, _ := w.record.Results(&other)
		if last := results[len(results)-1]; last.Epoch == 9 && last.Score > score {
			t.Errorf("trial %d has %g, the best %g", other.ID, last.Score, score)
		}
	}
}

// A trial whose loss was a number until it diverged is the worst, not as good as it was.
func TestATrialThatDivergedIsNotTheBest(t *testing.T) {
	e := experiment(search.ASHA, file.V1, 2)
	e.Objective = contract.Objective{Metric: "loss", Minimise: true}
	e.Constraints = []contract.Constraint{{Metric: "accuracy", Min: new(0.5)}}
	e.Concurrency = 2
	r := New("exp", e, "", time.Now().UTC())
	if err := r.Decide(newWorld(t, e).known, r.SubmittedAt); err != nil || len(r.Trials) < 2 {
		t.Fatal(len(r.Trials), err)
	}
	end := func(trial, epoch int, loss *float64, nonfinite float64) {
		metrics := map[string]float64{"accuracy": 0.9}
		if nonfinite > 0 {
			metrics[contract.NonfiniteSteps] = nonfinite
		}
		at := r.SubmittedAt.Add(time.Duration(epoch) * time.Second)
		r.EpochEnded(r.Trials[trial].Job, event.EpochEnded{Attempt: 1, EpochsDone: epoch, EpochSeconds: 1, Loss: loss, Metrics: metrics}, at)
	}
	end(0, 1, new(0.5), 0)
	end(1, 1, new(0.1), 0)
	if best, _, ok := r.Best(); !ok || best.ID != 1 {
		t.Errorf("the best is %+v", best)
	}
	end(0, 2, new(0.4), 0)
	end(1, 2, nil, 9)
	if best, _, ok := r.Best(); !ok || best.ID != 0 {
		t.Errorf("the best is %+v", best)
	}
	if score, known := r.History()[1].At(2); !known || !math.IsInf(score, -1) {
		t.Errorf("the search sees %g, %t", score, known)
	}
	if score, known := r.History()[1].At(1); !known || score != -0.1 {
		t.Errorf("the search sees %g, %t in the epoch before", score, known)
	}
}

// An objective or a constraint that is no number makes the trial the worst until it is a number again. Epochs
// that say nothing of it, as between two validations, change nothing.
func TestATrialWhoseMetricIsNoNumberIsTheWorst(t *testing.T) {
	const lost = train.Nonfinite + "val_loss"
	for _, test := range []struct {
		name   string
		epochs []map[string]float64
		worst  bool
	}{
		{"good", []map[string]float64{{"val_loss": 0.01}}, false},
		{"no number", []map[string]float64{{"val_loss": 0.01}, {lost: 1}}, true},
		{"no number, not validated since", []map[string]float64{{"val_loss": 0.01}, {lost: 1}, {}}, true},
		{"a number again", []map[string]float64{{lost: 1}, {"val_loss": 0.01}, {}}, false},
		{"not validated", []map[string]float64{{"val_loss": 0.01}, {}}, false},
		{"another metric", []map[string]float64{{"val_loss": 0.01}, {train.Nonfinite + "loss": 1}}, false},
		{"of some steps", []map[string]float64{{"val_loss": 0.01, lost: 1}}, false},
		{"a constraint", []map[string]float64{{"val_loss": 0.01}, {"val_loss": 0.01, train.Nonfinite + "accuracy": 1}}, true},
	} {
		e := experiment(search.ASHA, file.V1, 2)
		e.Objective = contract.Objective{Metric: "val_loss", Minimise: true}
		e.Constraints, e.Concurrency = nil, 2
		if test.name == "a constraint" {
			e.Constraints = []contract.Constraint{{Metric: "accuracy", Min: new(0.5)}}
		}
		r := New("exp", e, "", time.Now().UTC())
		if err := r.Decide(newWorld(t, e).known, r.SubmittedAt); err != nil || len(r.Trials) < 2 {
			t.Fatal(len(r.Trials), err)
		}
		for trial, epochs := range [][]map[string]float64{{{"val_loss": 0.5, "accuracy": 0.9}}, test.epochs} {
			for i, metrics := range epochs {
				if len(e.Constraints) > 0 && i == 0 {
					metrics["accuracy"] = 0.9
				}
				r.EpochEnded(r.Trials[trial].Job, event.EpochEnded{Attempt: 1, EpochsDone: i + 1, EpochSeconds: 1, Metrics: metrics}, r.SubmittedAt)
			}
		}
		best, _, ok := r.Best()
		if !ok || test.worst == (best.ID == 1) {
			t.Errorf("%s: the best is %+v", test.name, best)
		}
		if score, known := r.History()[1].At(len(test.epochs)); !known || math.IsInf(score, -1) != test.worst {
			t.Errorf("%s: the search sees %g, %t", test.name, score, known)
		}
		row := r.Rows()[1]
		if (row.Objective == nil) != test.worst || strings.Contains(row.Reason, "is no number") != test.worst {
			t.Errorf("%s: the row is %+v", test.name, row)
		}
		if ended := r.trialEnded(&r.Trials[1]); (ended.Score == nil) != test.worst {
			t.Errorf("%s: the end is %+v", test.name, ended)
		}
	}
}

// A first epoch without a time has that since the processes ran.
func TestAFirstEpochWithoutATimeHasAResultPerTime(t *testing.T) {
	e := experiment(search.ASHA, file.V1, 2)
	e.Objective.Per = contract.PerTime
	r := New("exp", e, "", time.Now().UTC())
	if err := r.Decide(newWorld(t, e).known, r.SubmittedAt); err != nil {
		t.Fatal(err)
	}
	job := r.Trials[0].Job
	r.Started(job, r.SubmittedAt)
	r.EpochEnded(job, event.EpochEnded{Attempt: 1, EpochsDone: 1, Metrics: map[string]float64{"accuracy": 0.5}}, r.SubmittedAt.Add(5*time.Second))
	if results, err := r.Results(&r.Trials[0]); err != nil || len(results) != 1 || results[0].Score != 0.1 {
		t.Errorf("results %+v, error %v", results, err)
	}
}

// An epoch belongs to the setting that all of it ran under.
func TestEpochsOfASetting(t *testing.T) {
	at := func(seconds float64) time.Time {
		return time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
	}
	trial := contract.Trial{
		Settings: []contract.SettingValues{{"cores": 2}, {"cores": 1}, {"cores": 4}},
		Applied: []train.Applied{
			{Attempt: 1, Generation: 1, At: at(0), Values: map[string]float64{"cores": 2}},
			{Attempt: 1, Generation: 2, At: at(15), Values: map[string]float64{"cores": 1}},
			{Attempt: 1, Generation: 3, At: at(31), Restarts: []string{"cores"}},
			{Attempt: 2, Generation: 3, At: at(40), Refused: map[string]string{"cores": "too many"}},
			{Attempt: 2, Generation: 2, At: at(56), Values: map[string]float64{"cores": 1}},
			{Attempt: 2, Generation: 1, At: at(66), Refused: map[string]string{"cores": "too many"}},
			{Attempt: 4, Generation: 1, At: at(80), Refused: map[string]string{"cores": "too many"}},
		},
	}
	for _, test := range []struct {
		name           string
		epoch          contract.TrialEpoch
		cores          float64
		whole, refused bool
	}{
		{"before", contract.TrialEpoch{Attempt: 1, At: at(10), Seconds: 10}, 2, true, false},
		{"across the change", contract.TrialEpoch{Attempt: 1, At: at(20), Seconds: 10}, 2, false, false},
		{"after", contract.TrialEpoch{Attempt: 1, At: at(30), Seconds: 10}, 1, true, false},
		{"it has yet to be started again", contract.TrialEpoch{Attempt: 1, At: at(45), Seconds: 10}, 2, false, false},
		{"refused", contract.TrialEpoch{Attempt: 2, At: at(55), Seconds: 10}, 4, true, true},
		{"what it was launched with is refused when it has another value", contract.TrialEpoch{Attempt: 2, At: at(76), Seconds: 10}, 2, true, true},
		{"nothing was reported", contract.TrialEpoch{Attempt: 3, At: at(70), Seconds: 10}, 2, false, false},
		{"it was launched with what is refused", contract.TrialEpoch{Attempt: 4, At: at(90), Seconds: 10}, 2, true, false},
	} {
		setting, refused, whole := settingOf(&trial, test.epoch, contract.SettingValues{"cores": 2})
		if setting["cores"] != test.cores || whole != test.whole || refused != test.refused {
			t.Errorf("%s: %v, refused %t, whole %t", test.name, setting, refused, whole)
		}
	}
}

// A restarted executor reports only a part of an attempt's long-standing setting: its epochs still count.
func TestWhatAnAttemptHasStays(t *testing.T) {
	r := newWorld(t, experiment(search.Random, file.PipeTune, 1)).record
	r.Trials = []contract.Trial{{Job: "exp-t0", Settings: []contract.SettingValues{{file.Cores: 2, file.PowerLimit: 150}}}}
	at := func(seconds int) time.Time { return r.SubmittedAt.Add(time.Duration(seconds) * time.Second) }
	part, whole := map[string]float64{file.Cores: 2}, map[string]float64{file.Cores: 2, file.PowerLimit: 150}
	retuned := func(attempt, seconds int, values map[string]float64) {
		r.Retuned(train.Applied{Job: "exp-t0", Attempt: attempt, Generation: 1, Values: values, At: at(seconds)})
	}
	counts := func(attempt, ends int) bool {
		_, _, whole := settingOf(&r.Trials[0], contract.TrialEpoch{Attempt: attempt, At: at(ends), Seconds: 10}, nil)
		return whole
	}
	retuned(1, 0, part)
	if counts(1, 10) {
		t.Error("an epoch without all of its setting counts")
	}
	retuned(1, 11, whole)
	retuned(1, 25, part)
	if !counts(1, 30) || !counts(1, 40) {
		t.Error("after a restart of the executor epochs do not count")
	}
	retuned(2, 41, part)
	if counts(2, 52) {
		t.Error("another attempt has what the one before it had")
	}
}

// A setting has the values; the job's texts keep the names of system parameters, which attempts fill in.
func TestSettingsSayWhatIsStarted(t *testing.T) {
	e := experiment(search.Random, file.PipeTune, 1)
	e.Job.Command, e.Job.Env = []string{"train", "--memory", "${memory_mib}"}, map[string]string{"MEMORY": "${memory_mib}m", "HOME": "/h"}
	e.System = []contract.Factor{{Name: file.MemoryMiB, Values: []float64{2048, 1024}}, {Name: file.MicroBatch, Values: []float64{32, 8}}}
	w := newWorld(t, e)
	w.run()
	trial := &w.record.Trials[0]
	trial.JobState = ""
	trial.Settings = append(trial.Settings, contract.SettingValues{file.MemoryMiB: 1024, file.MicroBatch: 8})
	got := w.record.Settings()[0]
	want := train.Setting{Job: "exp-t0", Experiment: "exp", Generation: uint64(len(trial.Settings)), Values: trial.Setting(), BatchSize: 32}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("wanted is %+v, want %+v", got, want)
	}
	job := e.TrialJob(0, 1, trial.Params, trial.Setting())
	if job.Command[2] != "${memory_mib}" || job.Env["MEMORY"] != "${memory_mib}m" {
		t.Errorf("the job of the trial is %+v", job)
	}
}

func TestCheck(t *testing.T) {
	for want, spoil := range map[string]func(*file.Experiment){
		`mode "v3"`:              func(e *file.Experiment) { e.Mode = "v3" },
		`name ""`:                func(e *file.Experiment) { e.Name = "" },
		`name "a b"`:             func(e *file.Experiment) { e.Name = "a b" },
		"system.cores: want":     func(e *file.Experiment) { e.System[0].Values = nil },
		"system.cores: 0:":       func(e *file.Experiment) { e.System[0].Values = []float64{2, 0} },
		"system.cores: 1.5:":     func(e *file.Experiment) { e.System[0].Values = []float64{1.5} },
		"system.cores: 2:":       func(e *file.Experiment) { e.System[0].Values = []float64{2, 2} },
		`system: "threads"`:      func(e *file.Experiment) { e.System[0].Name = "threads" },
		"system.cores: is given": func(e *file.Experiment) { e.System = append(e.System, e.System[0]) },
		"system: 1080 combin": func(e *file.Experiment) {
			e.System = append(e.System, upTo(file.MemoryMiB, 20), upTo(file.PowerLimit, 27))
		},
		"system: 1e+10 combin": func(e *file.Experiment) {
			e.System = []contract.Factor{upTo(file.Cores, 100), upTo(file.MemoryMiB, 100), upTo(file.Devices, 100), upTo(file.MicroBatch, 100), upTo(file.PowerLimit, 100)}
		},
		"profiles: job id":        func(e *file.Experiment) { e.Profiles = "a.b" },
		"concurrency 0":           func(e *file.Experiment) { e.Concurrency = 0 },
		"objective: is missing":   func(e *file.Experiment) { e.Objective.Metric = "" },
		"search.max_epochs 8":     func(e *file.Experiment) { e.Search.MaxEpochs = 8 },
		"2000 trials of 9 epochs": func(e *file.Experiment) { e.Search.Trials = 2000 },
	} {
		e := experiment(search.Random, file.PipeTune, 6)
		spoil(&e)
		if err := Check("exp", e); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// upTo returns a system parameter with the values from 1 on.
func upTo(name string, most int) contract.Factor {
	f := contract.Factor{Name: name}
	for x := range most {
		f.Values = append(f.Values, float64(x+1))
	}
	return f
}

func TestJobIDs(t *testing.T) {
	for id, want := range map[string]bool{"exp-t0": true, "a-t1-t12": true, "exp": false, "-t1": false, "exp-t01": false, "exp-t-1": false, "exp-tx": false} {
		experiment, trial, ok := contract.SplitTrialJob(id)
		if ok != want || ok && string(JobID(experiment, trial)) != id {
			t.Errorf("%s: %s, %d, %t", id, experiment, trial, ok)
		}
	}
}
