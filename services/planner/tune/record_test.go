package tune

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// sharerOf can run with its submitted batch and powers of two below.
func sharerOf(job train.JobID, batch int) contract.Sharer {
	s := contract.Sharer{Job: job, Attempt: 1, BatchSize: batch, Batches: Batches(batch, 0), Weight: 50}
	for range s.Batches {
		s.Gains = append(s.Gains, 1)
	}
	return s
}

func fixedSharer(job train.JobID, batch int) contract.Sharer {
	return contract.Sharer{Job: job, Attempt: 1, BatchSize: batch, Batches: []int{batch}, Gains: []float64{1}, Weight: 50, Fixed: true}
}

// device plays the tenants: each hears of a generation and tells two heartbeats of it, more than leastSeconds apart.
type device struct {
	now  time.Time
	step int
	took func(tenant int, t train.TunedJob) float64
}

func (d *device) beats(r Record) []Beat {
	var all []Beat
	for range 2 {
		d.now, d.step = d.now.Add(4*time.Second), d.step+10
		for i, t := range r.Tenants {
			b := Beat{Job: t.Job, Attempt: t.Attempt, At: d.now, Step: d.step, Steps: 10, StepSeconds: d.took(i, t)}
			if t.MicroBatch > 0 {
				b.Generation, b.MicroBatch = r.Generation, t.MicroBatch
			}
			all = append(all, b)
		}
	}
	return all
}

func batchesOf(r Record) []int {
	var all []int
	for _, t := range r.Tenants {
		all = append(all, t.MicroBatch)
	}
	return all
}

func TestARoundFindsTheBetterBatch(t *testing.T) {
	d := &device{now: time.Unix(1_000_000, 0)}
	// The second is disturbed by the passes of the first unless they are small; the third cannot be tuned and is, too.
	d.took = func(tenant int, t train.TunedJob) float64 {
		return map[int]float64{0: 0.10, 1: 0.20, 2: 0.30}[tenant]
	}
	r := Open(Record{}, []contract.Sharer{sharerOf("a", 64), sharerOf("b", 48), fixedSharer("c", 8)}, d.now)
	if got := batchesOf(r); !slices.Equal(got, []int{64, 48, 0}) {
		t.Fatalf("it begins with %v, want what the jobs have", got)
	}
	d.took = func(tenant int, _ train.TunedJob) float64 {
		if tenant == 0 {
			return 0.1
		}
		return 0.1 + float64(r.Tenants[0].MicroBatch)/128
	}
	generation := r.Generation
	for r.Settled.Code == "" {
		if !r.Move(d.beats(r), d.now) {
			t.Fatalf("all have answered, and nothing follows: %+v", r)
		}
		if r.Generation <= generation && r.Settled.Code == "" {
			t.Fatalf("generation %d after %d", r.Generation, generation)
		}
		generation = r.Generation
	}
	if r.Settled.Code != CodeTuned || r.Tenants[0].MicroBatch > 8 || r.Tried > MaxTrials {
		t.Errorf("settled on %v after %d trials: %v", batchesOf(r), r.Tried, r.Settled)
	}
	if last := r.Tenants[0]; last.Accumulation*last.MicroBatch != 64 {
		t.Errorf("%d passes of %d are not the batch of 64", last.Accumulation, last.MicroBatch)
	}

	// A job that stays keeps what was found for it, and starts from there; a job that is left alone has its own batch
	// again.
	next := Open(r, []contract.Sharer{sharerOf("a", 64), sharerOf("d", 16)}, d.now)
	if got := batchesOf(next); !slices.Equal(got, []int{r.Tenants[0].MicroBatch, 16}) || next.Generation <= r.Generation {
		t.Errorf("the next round begins with %v in generation %d", got, next.Generation)
	}
	alone := Open(next, []contract.Sharer{sharerOf("a", 64)}, d.now)
	if got := batchesOf(alone); !slices.Equal(got, []int{64}) || alone.Settled.Code != CodeAlone {
		t.Errorf("alone it has %v: %v", got, alone.Settled)
	}
}

func TestARoundRollsBack(t *testing.T) {
	d := &device{now: time.Unix(1_000_000, 0)}
	r := Open(Record{}, []contract.Sharer{sharerOf("a", 32), sharerOf("b", 32)}, d.now)
	start := batchesOf(r)
	d.took = func(int, train.TunedJob) float64 {
		if slices.Equal(batchesOf(r), start) {
			return 0.100
		}
		return 0.099 // within what measurements differ by
	}
	for r.Settled.Code == "" {
		r.Move(d.beats(r), d.now)
	}
	if got := batchesOf(r); r.Settled.Code != CodeKept || !slices.Equal(got, start) {
		t.Errorf("settled on %v: %v", got, r.Settled)
	}
}

// The best of eight measurements is partly luck: what was fast once and is not when it is measured again is given up.
func TestLuckIsNotABetterBatch(t *testing.T) {
	d := &device{now: time.Unix(1_000_000, 0)}
	r := Open(Record{}, []contract.Sharer{sharerOf("a", 32), sharerOf("b", 32)}, d.now)
	d.took = func(int, train.TunedJob) float64 {
		if r.Tried == 3 && !r.Confirming {
			return 0.05
		}
		return 0.1
	}
	confirmed := false
	for r.Settled.Code == "" {
		confirmed = confirmed || r.Confirming
		r.Move(d.beats(r), d.now)
	}
	if got := batchesOf(r); r.Settled.Code != CodeRolledBack || !confirmed || !slices.Equal(got, []int{32, 32}) {
		t.Errorf("settled on %v: %v", got, r.Settled)
	}
	if next := Open(r, append(r.Sharers, fixedSharer("c", 4)), d.now); !slices.Equal(batchesOf(next), []int{32, 32, 0}) {
		t.Errorf("the next round begins with %v, which was given up", batchesOf(next))
	}
}

// If a library reports only the mean of its whole run, its step count is measured.
func TestStepsAreCountedWhereTheirTimeIsNotTold(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	r := Open(Record{}, []contract.Sharer{sharerOf("a", 32), fixedSharer("kube", 8)}, at)
	var beats []Beat
	for i := range 3 {
		now := at.Add(time.Duration(4*i) * time.Second)
		beats = append(
			beats, Beat{Job: "a", Attempt: 1, At: now, Generation: r.Generation, MicroBatch: 32, Step: 10 * i, Steps: 10, StepSeconds: 0.25},
			Beat{Job: "kube", Attempt: 1, At: now.Add(time.Second), Step: 100 + 16*i, StepSeconds: 9},
		)
	}
	if !r.Move(beats, at) || r.Measured[0].StepSeconds[0] != 0.25 || r.Measured[0].StepSeconds[1] != 0.25 {
		t.Errorf("measured %+v", r.Measured)
	}
}

func TestASilentTenantEndsTheRound(t *testing.T) {
	d := &device{now: time.Unix(1_000_000, 0), took: func(int, train.TunedJob) float64 { return 0.1 }}
	r := Open(Record{}, []contract.Sharer{sharerOf("a", 32), sharerOf("b", 32)}, d.now)
	r.Move(d.beats(r), d.now)
	stale := d.beats(r)
	r.Move(stale, d.now)
	if r.Tried != 2 {
		t.Fatalf("%d trials", r.Tried)
	}
	if r.Move(stale, d.now.Add(AnswerTimeout-time.Second)) {
		t.Fatalf("answers of generation %d moved it to %d", stale[0].Generation, r.Generation)
	}
	if !r.Move(stale, d.now.Add(AnswerTimeout)) || r.Settled.Code != CodeSilence || r.Tenants[1].MicroBatch != 32 {
		t.Errorf("after the deadline: %+v", r.Tuning)
	}
}

// A round that was not answered is tried again, each time after a longer while, until one is.
func TestARoundIsTriedAgain(t *testing.T) {
	d := &device{now: time.Unix(1_000_000, 0), took: func(int, train.TunedJob) float64 { return 0.1 }}
	sharers := []contract.Sharer{sharerOf("a", 32), sharerOf("b", 32)}
	r := Open(Record{}, sharers, d.now)
	for _, minutes := range []int{6, 12, 24, 48, 60, 60} {
		wait := time.Duration(minutes) * time.Minute
		d.now = d.now.Add(AnswerTimeout)
		begun := r.Since
		if !r.Move(nil, d.now) || r.Settled.Code != CodeSilence {
			t.Fatalf("nobody answers: %+v", r.Tuning)
		}
		if r.Due(begun.Add(wait - time.Second)) {
			t.Fatalf("after %d rounds without an answer it is tried again within %v", r.Unanswered, wait)
		}
		if d.now = begun.Add(wait); !r.Due(d.now) {
			t.Fatalf("after %d rounds without an answer it is not tried again after %v", r.Unanswered, wait)
		}
		r = Open(r, sharers, d.now)
	}
	for r.Settled.Code == "" {
		r.Move(d.beats(r), d.now)
	}
	if r.Unanswered != 0 || r.Due(d.now.Add(24*time.Hour)) {
		t.Errorf("answered, it is to be tried again after %d rounds: %v", r.Unanswered, r.Settled)
	}
	if r = Open(Record{Tuning: r.Tuning, Sharers: sharers, Start: r.Start, Unanswered: 3}, append(sharers, fixedSharer("c", 4)), d.now); r.Unanswered != 0 {
		t.Errorf("other jobs have left %d rounds without an answer", r.Unanswered)
	}
}

// The gain of a job is a part of its progress alone, if that is known: a job that hardly runs is not helped at the
// cost of a job that runs nearly as fast as alone.
func TestProgressIsInPartsOfWhatJobsDoAlone(t *testing.T) {
	for alone, want := range map[float64]string{0: CodeTuned, 0.1: CodeKept} {
		d := &device{now: time.Unix(1_000_000, 0)}
		sharers := []contract.Sharer{sharerOf("a", 32), sharerOf("b", 32)}
		sharers[0].AloneSeconds, sharers[1].AloneSeconds = alone, alone
		r := Open(Record{}, sharers, d.now)
		d.took = func(tenant int, _ train.TunedJob) float64 {
			if slices.Equal(batchesOf(r), []int{32, 32}) {
				return []float64{0.50, 0.10}[tenant]
			}
			return []float64{0.35, 0.13}[tenant]
		}
		for r.Settled.Code == "" {
			r.Move(d.beats(r), d.now)
		}
		if r.Settled.Code != want {
			t.Errorf("alone a step takes %v s: %v, want %s", alone, r.Settled, want)
		}
	}
}

func TestNothingToTune(t *testing.T) {
	r := Open(Record{}, []contract.Sharer{fixedSharer("a", 32), fixedSharer("b", 32)}, time.Unix(1_000_000, 0))
	if r.Settled.Code != CodeFixed {
		t.Errorf("%+v", r.Tuning)
	}
}

// A job that dies with a larger batch than the submitted one does not get one again.
func TestABatchThatKilledIsNotTriedAgain(t *testing.T) {
	bold := contract.Sharer{Job: "a", Attempt: 1, BatchSize: 32, Batches: Batches(32, 64), Gains: []float64{1, 1, 1, 1, 1, 1.9}, Weight: 50}
	d := &device{now: time.Unix(1_000_000, 0), took: func(int, train.TunedJob) float64 { return 0.1 }}
	r := Open(Record{}, []contract.Sharer{bold, sharerOf("b", 32)}, d.now)
	for r.Tenants[0].MicroBatch != 64 {
		if r.Settled.Code != "" {
			t.Fatalf("the larger batch was never tried: %+v", r)
		}
		r.Move(d.beats(r), d.now)
	}
	r.Bound(func(job train.JobID, _ int) bool { return job != "a" })
	if r.Most["a"] != 32 {
		t.Errorf("bounds %v", r.Most)
	}
}

// Code that cannot take larger steps than the submitted ones says so by the micro-batch with which it takes up the
// wish. The round goes on without them.
func TestABatchThatIsRefusedIsNotWaitedFor(t *testing.T) {
	bold := contract.Sharer{Job: "a", Attempt: 1, BatchSize: 32, Batches: Batches(32, 128), Gains: []float64{1, 1, 1, 1, 1, 1.9, 3}, Weight: 50}
	d := &device{now: time.Unix(1_000_000, 0), took: func(int, train.TunedJob) float64 { return 0.1 }}
	r := Open(Record{}, []contract.Sharer{bold, sharerOf("b", 32)}, d.now)
	refusals := 0
	for r.Settled.Code == "" {
		before := d.now
		beats := d.beats(r)
		for i := range beats {
			if beats[i].Job == "a" && beats[i].MicroBatch > 32 {
				beats[i].MicroBatch = 32
				refusals++
			}
		}
		if !r.Move(beats, d.now) {
			t.Fatalf("nothing follows what was told from %v on: %+v", before, r)
		}
	}
	if refusals != 2 || r.Most["a"] != 32 || r.Settled.Code == CodeSilence || r.Tried < 2 || r.Tenants[0].MicroBatch > 32 {
		t.Errorf("%d heartbeats with another batch, bounds %v, settled after %d trials on %v: %v", refusals, r.Most, r.Tried, batchesOf(r), r.Settled)
	}
	if !slices.Equal(bold.Batches, Batches(32, 128)) {
		t.Errorf("the batches of the sharer have become %v", bold.Batches)
	}
}

func TestBatches(t *testing.T) {
	for _, c := range []struct {
		submitted, most int
		want            []int
	}{
		{1, 0, []int{1}},
		{2, 0, []int{1, 2}},
		{48, 0, []int{4, 8, 16, 32, 48}},
		{64, 64, []int{4, 8, 16, 32, 64}},
		{48, 200, []int{4, 8, 16, 32, 48, 64, 128}},
	} {
		if got := Batches(c.submitted, c.most); !slices.Equal(got, c.want) {
			t.Errorf("of %d, at most %d: %v, want %v", c.submitted, c.most, got, c.want)
		}
	}
}

// Whatever the tenants say or do not say: each round ends within its trials and its deadlines, each generation is
// new, nothing but the jobs' own batches is wanted of them, and what it settles on was measured to be at least as
// good as what the jobs had.
func TestEveryRoundOfADeviceEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		began := now
		var sharers []contract.Sharer
		for i := range rapid.IntRange(1, 3).Draw(t, "sharers") {
			s := sharerOf(train.JobID(rune('a'+i)), rapid.IntRange(1, 100).Draw(t, "batch"))
			if rapid.Bool().Draw(t, "fixed") {
				s = fixedSharer(s.Job, s.BatchSize)
				s.Silent = rapid.Bool().Draw(t, "silent")
			}
			if rapid.Bool().Draw(t, "known alone") {
				s.AloneSeconds = 0.1
			}
			sharers = append(sharers, s)
		}
		r := Open(Record{}, sharers, now)
		if rapid.Bool().Draw(t, "another round") { // from what an earlier one settled on
			choice := make([]int, len(sharers))
			for i, s := range sharers {
				choice[i] = rapid.IntRange(0, len(s.Batches)-1).Draw(t, "settled on")
			}
			before := r
			before.settle(choice, CodeTuned, "", now)
			r = Open(before, sharers, now)
		}
		for r.Settled.Code == "" {
			now = now.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "seconds")) * time.Second)
			before := r.Generation
			changed := r.Move(anyBeats(t, r, now), now)
			if r.Generation > before+1 || r.Generation == before && changed && r.Settled.Code == "" || r.Generation != before && !changed {
				t.Fatalf("generation %d after %d, changed %t", r.Generation, before, changed)
			}
			for i, one := range r.Tenants {
				if !sharers[i].Fixed && !slices.Contains(sharers[i].Batches, one.MicroBatch) || sharers[i].Fixed && one.MicroBatch != 0 {
					t.Fatalf("wanted of %+v: %+v", sharers[i], one)
				}
			}
			if r.Tried > MaxTrials || now.Sub(began) > (MaxTrials+2)*(AnswerTimeout+time.Minute) {
				t.Fatalf("%d trials in %v do not end: %+v", r.Tried, now.Sub(began), r)
			}
		}
		trials := r.trials()
		for _, one := range trials {
			if slices.Equal(one.Choice, r.wanted()) && one.Progress < trials[0].Progress {
				t.Fatalf("settled on %+v, worse than %+v", one, trials[0])
			}
		}
	})
}

// anyBeats are heartbeats of the tenants in order: of any generation, with any batch, or none.
func anyBeats(t *rapid.T, r Record, now time.Time) []Beat {
	var all []Beat
	for k := range rapid.IntRange(0, 12).Draw(t, "beats") {
		one := r.Tenants[rapid.IntRange(0, len(r.Tenants)-1).Draw(t, "tenant")]
		if rapid.IntRange(0, 9).Draw(t, "refuses") == 0 {
			one.MicroBatch /= 2
		}
		all = append(all, Beat{
			Job: one.Job, Attempt: rapid.IntRange(1, 2).Draw(t, "attempt"), At: now.Add(time.Duration(k) * time.Second),
			Generation: r.Generation - uint64(rapid.IntRange(0, 1).Draw(t, "old")), MicroBatch: one.MicroBatch,
			Step: rapid.IntRange(0, 1000).Draw(t, "step"), Steps: rapid.IntRange(0, 20).Draw(t, "steps"),
			StepSeconds: rapid.Float64Range(0, 2).Draw(t, "step seconds"),
		})
	}
	return all
}
