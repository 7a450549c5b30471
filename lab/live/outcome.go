package live

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// Outcome is a workload that the services have run.
type Outcome struct {
	Nodes []train.Node
	// Jobs are the register's records after their end, Attempts what was seen of each attempt.
	Jobs     map[train.JobID]train.Job
	Attempts []Attempt
	// Began is when the clock of the arrivals started.
	Began time.Time
}

// Attempt is one start of a job: what it held, when its record was first seen, and when its outcome was.
type Attempt struct {
	Job             train.JobID
	Number          int
	Places          []train.Part
	Claimed, Judged time.Time
}

// Epoch is an epoch, or the part of one, that an attempt of a job has trained and saved, as the trainers' ledger holds
// it: the progress at both its ends, and the moments in seconds since 1970.
type Epoch struct {
	Job     train.JobID `json:"job"`
	Attempt int         `json:"attempt"`
	Epoch   int         `json:"epoch"`
	From    float64     `json:"from"`
	To      float64     `json:"to"`
	Begun   float64     `json:"begun"`
	Ended   float64     `json:"ended"`
}

// Check returns nil if every job has trained exactly its work: each epoch once, in order, and each part from where the
// one before it ended.
func Check(jobs []Job, ledger []Epoch) error {
	trained := map[train.JobID][]Epoch{}
	for _, e := range ledger {
		trained[e.Job] = append(trained[e.Job], e)
	}
	for _, j := range jobs {
		course, done, progress := j.Application.Course(""), 0, 0.0
		for _, e := range trained[j.ID] {
			if e.Epoch != done+1 || e.From != progress || e.To > course.End(done+1) {
				return fmt.Errorf("job %s: its epoch %d went from %g to %g (attempt %d), want epoch %d from %g to %g at most",
					j.ID, e.Epoch, e.From, e.To, e.Attempt, done+1, progress, course.End(done+1))
			}
			if progress = e.To; progress == course.End(done+1) {
				done++
			}
		}
		if done != course.Epochs {
			return fmt.Errorf("job %s has trained %d epochs, want %d", j.ID, done, course.Epochs)
		}
	}
	return nil
}

// StartSeconds is what starts have cost on average: from the claim of an attempt to its first step, and from its last
// step until its outcome was known.
func (o Outcome) StartSeconds(ledger []Epoch) float64 {
	type attempt struct {
		job    train.JobID
		number int
	}
	type span struct{ begun, ended float64 }
	spans := map[attempt]span{}
	for _, e := range ledger {
		key := attempt{e.Job, e.Attempt}
		s, known := spans[key]
		if !known {
			s.begun = e.Begun
		}
		s.ended = e.Ended
		spans[key] = s
	}
	sum, count := 0.0, 0.0
	for _, a := range o.Attempts {
		if s, trained := spans[attempt{a.Job, a.Number}]; trained && !a.Judged.IsZero() {
			sum += s.begun - unix(a.Claimed) + unix(a.Judged) - s.ended
			count++
		}
	}
	return sum / max(count, 1)
}

func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// Figures are what is compared, in seconds of the run.
type Figures struct {
	AvgSeconds      float64 `json:"avg_jct_seconds"`
	P99Seconds      float64 `json:"p99_jct_seconds"`
	MakespanSeconds float64 `json:"makespan_seconds"`
	Restarts        int     `json:"restarts"`
}

// Figures returns those of the run.
func (o Outcome) Figures() Figures {
	var f Figures
	var jcts []float64
	for _, j := range o.Jobs {
		jct := j.FinishedAt.Sub(j.SubmittedAt).Seconds()
		jcts = append(jcts, jct)
		f.AvgSeconds += jct / float64(len(o.Jobs))
		f.MakespanSeconds = max(f.MakespanSeconds, j.FinishedAt.Sub(o.Began).Seconds())
		f.Restarts += j.Restarts
	}
	slices.Sort(jcts)
	f.P99Seconds = sim.Percentile(jcts, 0.99)
	return f
}

// Simulated returns the figures of a simulation.
func Simulated(r sim.Result) Figures {
	return Figures{AvgSeconds: r.AvgJCTSeconds, P99Seconds: r.P99JCTSeconds, MakespanSeconds: r.MakespanSeconds, Restarts: r.Restarts}
}

// Earlier compares jobs by their arrival.
func Earlier(x, y Job) int { return cmp.Compare(x.Seconds, y.Seconds) }
