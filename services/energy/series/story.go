package series

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/energy/tariff"
)

// Story is what must be remembered of a job from fact to fact. Like Counters it is written after the points.
type Story struct {
	Sequence uint64 `json:"sequence"`
	// Epochs is how many were done at the last one's end.
	Epochs int `json:"epochs"`
	// Policy planned the job first, and predicted this finish and this power of its devices.
	Policy          string    `json:"policy,omitempty"`
	PredictedFinish time.Time `json:"predicted_finish,omitzero"`
	PredictedWatts  float64   `json:"predicted_w,omitempty"`
}

// Seen is a fact of a job with what the records said of it at that time.
type Seen struct {
	Job     train.Job
	Account train.Account
	// Epoch is the energy of the epoch that ended, where the fact says so and the ledger knows it.
	Epoch    *unit.Energy
	Fact     string
	Data     []byte
	Time     time.Time
	Sequence uint64
	// Policy is that of the newest plan.
	Policy string
	// Price is that of a moment.
	Price func(time.Time) tariff.Price
}

// JobFacts are the facts that become points.
func JobFacts() []string {
	return []string{
		event.FactAdmitted, event.FactPlanned, event.FactStarted, event.FactEpochEnded, event.FactStopRequested, event.FactPreempted, event.FactAttemptLost,
		event.FactStraggling, event.FactConverged, event.FactOverspent, event.FactSucceeded, event.FactFailed, event.FactCancelled,
	}
}

// facts that are published in the same nanosecond stand next to each other in the stream.
const eventShards = 16

// Add takes a fact and gives its points. A fact that was taken before gives nothing.
func (c *Story) Add(s Seen) []Point {
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

// event is what an annotation shows.
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

// plan remembers the first prediction.
func (c *Story) plan(s Seen) {
	planned, err := event.Decode[event.Planned](s.Data)
	if err != nil || c.Policy != "" {
		return
	}
	c.Policy, c.PredictedWatts = s.Policy, planned.PowerWatts
	if planned.RemainingSeconds > 0 {
		c.PredictedFinish = s.Time.Add(time.Duration(planned.RemainingSeconds * float64(time.Second)))
	}
}

// epoch gives the point of an epoch. Several epochs that are told at once count as one.
func (c *Story) epoch(s Seen) []Point {
	ended, err := event.Decode[event.EpochEnded](s.Data)
	if err != nil || ended.EpochsDone <= c.Epochs {
		return nil // repeated after a restart from a checkpoint
	}
	p := Point{
		Measurement: JobEpoch, Time: s.Time, Tags: map[string]string{"tenant": s.tenant(), "shard": shard(int(s.Sequence % eventShards))},
		Fields: map[string]any{
			"job_id": string(s.Job.ID), "epoch": int64(ended.EpochsDone), "batch": int64(s.Job.Spec.BatchSize * max(ended.Devices, 1)),
			"time_s": ended.EpochSeconds,
		},
	}
	if s.Epoch != nil {
		p.Fields["energy_uj"] = int64(*s.Epoch)
	}
	if ended.Loss != nil {
		p.Fields["metric"] = *ended.Loss
	}
	if accuracy, told := ended.Metrics["accuracy"]; told {
		p.Fields["metric"] = accuracy
	}
	c.Epochs = ended.EpochsDone
	return []Point{p}
}

// EpochEnergy is what a job used between an epoch's end and that of the one before, by the ledger.
func EpochEnergy(course train.Course, ended event.EpochEnded) (energy unit.Energy, booked bool) {
	for _, e := range course.Epochs {
		if e.Attempt == ended.Attempt && e.EpochsDone == ended.EpochsDone {
			return e.Energy - energy, true
		}
		energy = e.Energy
	}
	return 0, false
}

// decision holds what was predicted when the job was first planned against what came of it.
func (c *Story) decision(s Seen) Point {
	p := Point{
		Measurement: PlanDecision, Time: s.Time, Tags: map[string]string{"policy": tag(c.Policy)},
		Fields: map[string]any{"job_id": string(s.Job.ID)},
	}
	started := s.Job.StartedAt
	if len(s.Account.Components) > 0 { // else nothing was measured of it
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
			s.spent(p, "predicted", unit.Energy(math.Min(c.PredictedWatts*seconds, mostJoules)*float64(unit.Joule)), started, predicted)
		}
	}
	return p
}

// mostJoules is more than any job spends, and few enough to be counted in microjoules.
const mostJoules = 1e12

// spent adds an energy and what it costs as spread evenly over the run.
func (s Seen) spent(p Point, which string, e unit.Energy, from, to time.Time) {
	p.Fields[which+"_uj"] = int64(e)
	if from.IsZero() || s.Price == nil {
		return
	}
	if cost, known := tariff.Cost(s.Price, e, from, to); known {
		p.Fields[which+"_cost"] = cost
	}
}
