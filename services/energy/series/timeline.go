package series

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/energy/tariff"
)

// Timeline turns the facts of a job into points.
type Timeline contract.JobSeries

// Seen is a fact of a job with what the records held about the job at that time.
type Seen struct {
	Job     train.Job
	Account train.Account
	// Epoch is the energy of the epoch that ended, if the fact reports an epoch and the ledger knows it.
	Epoch    *unit.Energy
	Fact     string
	Data     []byte
	Time     time.Time
	Sequence uint64
	// Policy is the policy of the newest plan.
	Policy string
	// Price returns the price at a time.
	Price func(time.Time) tariff.Price
}

// JobFacts returns the facts that become points.
func JobFacts() []string {
	return []string{
		event.FactAdmitted, event.FactPlanned, event.FactStarted, event.FactEpochEnded, event.FactStopRequested, event.FactPreempted, event.FactAttemptLost,
		event.FactStraggling, event.FactConverged, event.FactOverspent, event.FactSucceeded, event.FactFailed, event.FactCancelled,
	}
}

// facts published in the same nanosecond are neighbours in the stream
const eventShards = 16

// Add folds in a fact and returns its points. A repeated fact returns none.
func (c *Timeline) Add(s Seen) []Point {
	if s.Sequence <= c.Sequence {
		return nil
	}
	c.Sequence = s.Sequence
	switch s.Fact {
	case event.FactPlanned:
		c.plan(s)
		return []Point{s.event()}
	case event.FactEpochEnded:
		return c.epoch(s)
	case event.FactSucceeded, event.FactFailed, event.FactCancelled:
		return []Point{s.event(), c.decision(s)}
	}
	return []Point{s.event()}
}

func (s Seen) tenant() string { return tag(s.Job.Spec.Tenant) }

// event returns the annotation of the fact.
func (s Seen) event() Point {
	text := fmt.Sprintf("%s %s", s.Job.ID, strings.ReplaceAll(s.Fact, "_", " "))
	if s.Fact == event.FactStarted {
		if started, err := event.Decode[event.Started](s.Data); err == nil {
			text += fmt.Sprintf(" on %s (%s)", started.Node, train.JoinDevices(started.Devices))
		}
	}
	return Point{
		Measurement: JobEvent, Time: s.Time, Tags: map[string]string{"tenant": s.tenant(), "fact": s.Fact, "shard": shard(int(s.Sequence % eventShards))},
		Fields: map[string]any{"job_id": string(s.Job.ID), "text": text},
	}
}

// plan stores the first prediction.
func (c *Timeline) plan(s Seen) {
	planned, err := event.Decode[event.Planned](s.Data)
	if err != nil || c.Policy != "" {
		return
	}
	c.Policy, c.PredictedWatts = s.Policy, planned.PowerWatts
	if planned.RemainingSeconds > 0 {
		c.PredictedFinish = s.Time.Add(time.Duration(planned.RemainingSeconds * float64(time.Second)))
	}
}

// epoch returns the point of an epoch. Several epochs reported at once count as one.
func (c *Timeline) epoch(s Seen) []Point {
	ended, err := event.Decode[event.EpochEnded](s.Data)
	if err != nil || ended.EpochsDone <= c.Epochs {
		return nil // repeated after a restart from a checkpoint
	}
	p := Point{
		Measurement: JobEpoch, Time: s.Time, Tags: map[string]string{"tenant": s.tenant(), "shard": shard(int(s.Sequence % eventShards))},
		Fields: map[string]any{
			"job_id": string(s.Job.ID), "epoch": int64(ended.EpochsDone), "batch": int64(s.Job.Spec.Batch(max(ended.Devices, 1)).Global(max(ended.Devices, 1))),
			"time_s": ended.EpochSeconds,
		},
	}
	if s.Epoch != nil {
		p.Fields["energy_uj"] = int64(*s.Epoch)
	}
	if ended.Loss != nil {
		p.Fields["metric"] = *ended.Loss
	}
	if accuracy, reported := ended.Metrics["accuracy"]; reported {
		p.Fields["metric"] = accuracy
	}
	c.Epochs = ended.EpochsDone
	return []Point{p}
}

// EpochEnergy returns the energy a job used between the ends of an epoch and of the one before, by the ledger.
func EpochEnergy(progress train.EnergyProgress, ended event.EpochEnded) (energy unit.Energy, booked bool) {
	for _, e := range progress.Epochs {
		if e.Attempt == ended.Attempt && e.EpochsDone == ended.EpochsDone {
			return e.Energy - energy, true
		}
		energy = e.Energy
	}
	return 0, false
}

// decision compares the prediction at the first plan of a job with the outcome.
func (c *Timeline) decision(s Seen) Point {
	p := Point{
		Measurement: PlanDecision, Time: s.Time, Tags: map[string]string{"policy": tag(c.Policy)},
		Fields: map[string]any{"job_id": string(s.Job.ID)},
	}
	started := s.Job.StartedAt
	if len(s.Account.Components) > 0 { // else nothing was measured
		s.spent(p, "actual", s.Account.Energy, started, s.Time)
	}
	if started.IsZero() {
		return p
	}
	p.Fields["actual_s"] = s.Time.Sub(started).Seconds()
	predicted := c.PredictedFinish
	if predicted.IsZero() {
		predicted = s.Job.FirstPredictedFinish // nothing was known before the first epoch
	}
	if predicted.After(started) {
		seconds := predicted.Sub(started).Seconds()
		p.Fields["predicted_s"] = seconds
		if c.PredictedWatts > 0 {
			s.spent(p, "predicted", unit.Energy(math.Min(c.PredictedWatts*seconds, mostJoules)*float64(unit.Joule)),
				started, predicted)
		}
	}
	return p
}

// mostJoules is more than any job spends, and small enough to be counted in microjoules.
const mostJoules = 1e12

// spent adds an energy and its cost, spread evenly over the run.
func (s Seen) spent(p Point, which string, e unit.Energy, from, to time.Time) {
	p.Fields[which+"_uj"] = int64(e)
	if from.IsZero() || s.Price == nil {
		return
	}
	if cost, known := tariff.Cost(s.Price, e, from, to); known {
		p.Fields[which+"_cost"] = cost
	}
}
