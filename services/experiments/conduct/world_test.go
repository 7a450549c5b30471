package conduct

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
	"github.com/switchyard-dl/switchyard/services/experiments/profile"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// world plays the scheduler in virtual time: every job runs at once, an epoch takes the time that cost returns, and
// reaches the value that value returns.
type world struct {
	t      *testing.T
	now    time.Time
	record Record
	known  profile.Store
	cost   func(batch, cores float64) float64
	value  func(rate float64, epoch int) float64
	// busy is the number of processors a job keeps busy on all cores; 0: not measured. watts is its power, nil without
	// a meter. Both are reported lag after an epoch.
	busy  float64
	watts func(cores float64) float64
	lag   time.Duration
	// refused are the parameters that cannot be set while a job runs, slots the most cores a job can have, 0: any
	// number. A refused parameter keeps its value.
	refused []string
	slots   float64
	// factor is the parameter that cost and slots depend on.
	factor string
	// restarts are the parameters that need a restart: the job stops at its epoch's end. An attempt begins to train
	// after restart.
	restarts []string
	restart  time.Duration
	// fatal reports the numbers of cores at which the processes of a job are killed half-way through an epoch, lost
	// counts these attempts; a job fails at the second one.
	fatal func(cores float64) bool
	lost  int
	// latency is the time until a running job has another setting.
	latency time.Duration
	jobs    map[train.JobID]*job
	// restarted counts the attempts that stopped for parameters. trained counts all epochs of all jobs.
	restarted int
	trained   int
	sequence  uint64
	// killed decodes the record from its bytes before each event, and repeats each event, as after a kill -9.
	killed bool
}

type job struct {
	spec    train.Spec
	setting train.Setting
	// cores is the number of cores of its processes.
	cores float64
	// pending is a setting that will be applied at a time.
	pending   *train.Setting
	pendingAt time.Time
	attempt   int
	lost      int
	// next is the setting of the next attempt, nil if the present one continues.
	next    *train.Setting
	done    int
	running bool
	over    bool
	// look is the next time when the service checks the measurements, used the energy of the job at the end of each
	// epoch.
	look time.Time
	used []train.EpochEnergy
	// ends is the end of the running epoch, begun its beginning.
	begun, ends time.Time
}

func newWorld(t *testing.T, e file.Experiment) *world {
	t.Helper()
	if err := Check("exp", e); err != nil {
		t.Fatal(err)
	}
	began := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	return &world{
		t: t, now: began, record: New("exp", e, "hash", began), jobs: map[train.JobID]*job{}, latency: 50 * time.Millisecond, lag: 20 * time.Millisecond, factor: file.Cores,
		cost: func(batch, cores float64) float64 { return 40/cores + 320/batch*cores }, value: func(rate float64, epoch int) float64 { return rate * float64(epoch) },
	}
}

// hear enters something in the record and carries out what follows.
func (w *world) hear(change func(*Record)) {
	w.t.Helper()
	if w.killed {
		w.reload()
	}
	w.sequence++
	tell := func() {
		if !w.record.Seen(event.StreamJobs, w.sequence) {
			change(&w.record)
		}
		w.known = w.record.Learn(w.known)
		if err := w.record.Decide(w.known, w.now); err != nil {
			w.t.Fatal(err)
		}
	}
	tell()
	if w.killed {
		w.reload()
		tell()
	}
	w.act()
}

func (w *world) reload() {
	w.t.Helper()
	data, err := json.Marshal(w.record)
	if err != nil {
		w.t.Fatal(err)
	}
	var again Record
	if err := json.Unmarshal(data, &again); err != nil {
		w.t.Fatal(err)
	}
	repeated, err := json.Marshal(again)
	if err != nil || !bytes.Equal(data, repeated) {
		w.t.Fatalf("a record does not survive a restart (%v):\n%s\n%s", err, data, repeated)
	}
	w.record = again
}

// act carries out the record's requests.
func (w *world) act() {
	w.t.Helper()
	for _, s := range w.record.Settings() {
		j := w.jobs[s.Job]
		if j == nil {
			j = &job{}
			w.jobs[s.Job] = j
		}
		if j.setting.PauseAfter = s.PauseAfter; j.setting.Generation != s.Generation && j.pending == nil {
			j.pending, j.pendingAt = &s, w.now.Add(w.latency)
		}
		if !j.running && !j.over && j.done > 0 && !s.Pauses(j.done) {
			w.begin(s.Job, j)
		}
	}
	for _, f := range w.record.Submissions() {
		id := train.JobID(f.Subject.ID)
		j := w.jobs[id]
		if j.attempt > 0 {
			continue
		}
		j.spec = f.Body.(event.Submitted).Spec
		w.begin(id, j)
	}
	for _, f := range w.record.Cancellations() {
		id := train.JobID(f.Subject.ID)
		if j := w.jobs[id]; !j.over {
			j.over, j.running = true, false
			w.hear(func(r *Record) { r.JobEnded(id, train.StateCancelled, "", w.now) })
		}
	}
}

// begin starts an attempt with the desired setting.
func (w *world) begin(id train.JobID, j *job) {
	w.t.Helper()
	j.attempt++
	j.running, j.begun = true, w.now.Add(w.restart)
	if j.pending != nil {
		j.setting, j.pending, j.next = *j.pending, nil, nil
	}
	if j.next != nil {
		j.setting, j.next = *j.next, nil
	}
	j.cores = w.record.Experiment.System[0].Values[0]
	if w.slots > 0 {
		j.cores = min(j.cores, w.slots)
	}
	w.give(j)
	w.schedule(j, 1)
	j.ends = j.ends.Add(w.restart)
	at := w.now
	w.hear(func(r *Record) { r.Started(id, at) })
	w.applied(id, j, at)
}

func (w *world) applied(id train.JobID, j *job, at time.Time) {
	w.t.Helper()
	a := train.Applied{Job: id, Attempt: j.attempt, Generation: j.setting.Generation, Values: maps.Clone(j.setting.Values), At: at}
	for name := range j.setting.Values {
		if w.refuses(j, name) {
			delete(a.Values, name)
			a.Refuse(name, "it cannot be set while a job runs")
		}
	}
	for _, name := range w.restarts {
		a.Restarts = append(a.Restarts, name)
		if j.next != nil && j.next.Values[name] != j.setting.Values[name] {
			delete(a.Values, name)
			a.Generation = j.next.Generation
		}
	}
	w.hear(func(r *Record) { r.Retuned(a) })
}

// refuses reports whether a job cannot have its setting's value of a parameter.
func (w *world) refuses(j *job, name string) bool {
	return slices.Contains(w.refused, name) || name == w.factor && w.slots > 0 && j.setting.Values[name] > w.slots
}

// give applies the job's setting to its processes, as far as possible.
func (w *world) give(j *job) {
	if cores := j.setting.Values[w.factor]; cores > 0 && !w.refuses(j, w.factor) {
		j.cores = cores
	}
}

func (w *world) schedule(j *job, left float64) {
	seconds := left * w.cost(float64(j.spec.BatchSize), j.cores)
	j.ends = w.now.Add(time.Duration(seconds * float64(time.Second)))
}

// run lets time pass until the experiment is over and every job has ended.
func (w *world) run() {
	w.t.Helper()
	w.hear(func(*Record) {})
	for range 100_000 {
		if !w.next() {
			return
		}
	}
	w.t.Fatal("the experiment does not end")
}

// next executes the next event; false if nothing runs any more, as it should when the experiment is over.
func (w *world) next() bool {
	w.t.Helper()
	var next train.JobID
	var at time.Time
	for _, id := range slices.Sorted(keys(w.jobs)) {
		if when := w.jobs[id].upcoming(); !when.IsZero() && (next == "" || when.Before(at)) {
			next, at = id, when
		}
	}
	if next != "" {
		w.step(next, at)
	} else if !w.record.Over() {
		w.t.Fatalf("nothing runs, and the experiment is not over: %+v", w.record)
	}
	return next != ""
}

func keys(jobs map[train.JobID]*job) func(func(train.JobID) bool) {
	return func(yield func(train.JobID) bool) {
		for id := range jobs {
			if !yield(id) {
				return
			}
		}
	}
}

// upcoming returns the time of a job's next event; zero: never.
func (j *job) upcoming() time.Time {
	all := []time.Time{j.look}
	if j.running {
		all = append(all, j.ends)
	}
	if j.running && j.pending != nil {
		all = append(all, j.pendingAt)
	}
	if all = slices.DeleteFunc(all, time.Time.IsZero); len(all) == 0 {
		return time.Time{}
	}
	return slices.MinFunc(all, time.Time.Compare)
}

// see reports a job's measurements. As long as a decision waits the service checks again.
func (w *world) see(id train.JobID, j *job) {
	w.t.Helper()
	if j.look = (time.Time{}); !w.record.Over() {
		w.hear(func(r *Record) {
			if w.busy > 0 && r.trial(id).State == search.Running {
				r.Profiled(id, contract.TrialProfile{BusyCores: w.busy, Signature: contract.Signature{"busy_cores": w.busy}})
			}
			if w.watts != nil {
				r.Metered(id, train.EnergyProgress{Epochs: j.used}, train.Account{Methods: []string{"rapl"}, Final: j.over}, w.now)
			}
		})
	}
	if w.record.Undecided() {
		j.look = w.now.Add(time.Second)
	}
}

// step executes the next event of a job: the service checks, it is retuned, or an epoch ends.
func (w *world) step(id train.JobID, at time.Time) {
	w.t.Helper()
	j := w.jobs[id]
	if at.Equal(j.look) {
		w.now = at
		w.see(id, j)
		return
	}
	if j.pending != nil && !j.pendingAt.After(at) && at.Before(j.ends) {
		left := j.ends.Sub(at).Seconds() / w.cost(float64(j.spec.BatchSize), j.cores)
		w.now = at
		differs := func(name string) bool {
			has := j.setting.Values[name]
			if name == w.factor {
				has = j.cores
			}
			return j.pending.Values[name] != has && !w.refuses(&job{setting: *j.pending}, name)
		}
		if slices.ContainsFunc(w.restarts, differs) {
			j.next, j.pending = j.pending, nil
		} else {
			j.setting, j.pending = *j.pending, nil
			w.give(j)
		}
		w.schedule(j, min(left, 1))
		w.applied(id, j, at)
		return
	}
	w.now = at
	if w.fatal != nil && w.fatal(j.cores) {
		w.lose(id, j)
		return
	}
	j.done++
	w.trained++
	rate := 0.1
	if x, ok := w.record.Trials[w.record.trial(id).ID].Params["rate"]; ok {
		rate, _ = x.Float()
	}
	e := event.EpochEnded{
		Attempt: j.attempt, EpochsDone: j.done, EpochSeconds: at.Sub(j.begun).Seconds(), Devices: 2,
		Metrics: map[string]float64{"accuracy": w.value(rate, j.done)},
	}
	if w.factor == file.Devices {
		e.Devices = int(j.cores)
	}
	if w.watts != nil {
		used := w.watts(j.cores) * e.EpochSeconds
		if len(j.used) > 0 {
			used += j.used[len(j.used)-1].Energy.Joules()
		}
		j.used = append(j.used,
			train.EpochEnergy{Attempt: j.attempt, EpochsDone: j.done, Energy: unit.Energy(used * float64(unit.Joule))})
	}
	j.begun, j.look = at, at.Add(w.lag)
	paused := j.setting.Pauses(j.done)
	switch {
	case j.done >= j.spec.MaxEpochs:
		j.running, j.over = false, true
	case paused:
		j.running = false
	case j.next != nil:
		w.restarted++
		j.running = false
	default:
		w.schedule(j, 1)
	}
	w.hear(func(r *Record) { r.EpochEnded(id, e, at) })
	if j.over {
		w.hear(func(r *Record) { r.JobEnded(id, train.StateSucceeded, "", at) })
	}
	if j.next != nil && !paused && !j.running && !j.over {
		w.begin(id, j)
	}
}

// lose ends an attempt whose processes were killed.
func (w *world) lose(id train.JobID, j *job) {
	w.t.Helper()
	attempt, exit := j.attempt, train.Exit{Signal: "SIGKILL"}
	w.lost++
	j.lost++
	w.hear(func(r *Record) { r.AttemptLost(id, attempt, exit, false) })
	if j.over = j.lost > 1; j.over {
		j.running = false
		w.hear(func(r *Record) { r.JobEnded(id, train.StateFailed, "killed", w.now) })
		return
	}
	w.begin(id, j)
}

// experiment returns an experiment searched on two cores.
func experiment(algorithm contract.SearchAlgorithm, mode contract.ExperimentMode, trials int) file.Experiment {
	return file.Experiment{
		Name: "exp", Mode: mode, Concurrency: 1, Objective: contract.Objective{Metric: "accuracy"},
		Job:    train.Spec{Name: "exp", Command: []string{"train"}, BatchSize: 32, TrainingSetSize: 1000, MaxEpochs: 9},
		Space:  search.Space{{Name: "rate", Kind: search.Uniform, Low: 0.01, High: 0.1}},
		Search: contract.SearchConfig{Algorithm: algorithm, Trials: trials, MaxEpochs: 9, Seed: 1},
		System: []contract.Factor{{Name: file.Cores, Values: []float64{2, 1}}},
	}
}
