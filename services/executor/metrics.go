package executor

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
)

// metrics are the service's own metrics.
type metrics struct {
	running                 prometheus.Gauge
	starts, losses, refused prometheus.Counter
	unreported              prometheus.Counter
	generation              prometheus.Gauge
	planDelay               prometheus.Histogram
	outcomes                *prometheus.CounterVec
	startLatency            prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	auto := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &metrics{
		running: auto.NewGauge(prometheus.GaugeOpts{Name: "switchyard_executor_attempts_running", Help: "Attempts that hold devices."}),
		starts:  counter("switchyard_executor_starts_total", "Attempts that were claimed."),
		losses:  counter("switchyard_executor_losses_total", "Attempts whose supervisor vanished."),
		unreported: counter("switchyard_executor_unreported_total",
			"Reports of ended attempts that their node's agent was away for: epochs in them count, their figures are lost."),
		refused:    counter("switchyard_executor_plans_refused_total", "Plans older than the newest accepted plan."),
		outcomes:   auto.NewCounterVec(prometheus.CounterOpts{Name: "switchyard_executor_outcomes_total", Help: "Attempts that ended, by outcome."}, []string{"outcome"}),
		generation: auto.NewGauge(prometheus.GaugeOpts{Name: "switchyard_executor_plan_generation", Help: "Generation of the newest plan that this executor acts on."}),
		planDelay: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "switchyard_executor_plan_delay_seconds", Help: "From storing a plan to acting on it.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}),
		startLatency: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "switchyard_executor_start_latency_seconds", Help: "From the claim of an attempt to its running supervisor.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 12),
		}),
	}
}

// attemptTally is what follows from the records of all attempts. The cache protects it by its lock.
type attemptTally struct {
	realm diff.Realm
	// held are the devices of live attempts; live counts the attempts that this executor is responsible for.
	held train.Occupancy
	live int
	// stopSeen and exitSeen are when this executor first saw that an attempt has to leave, and that it has exited.
	stopSeen map[diff.ReportKey]time.Time
	exitSeen map[diff.ReportKey]time.Time
	// stepsSeen has the newest steps of live attempts, with the time when this executor first saw them.
	stepsSeen map[diff.ReportKey]train.Steps
}

func newAttemptTally(realm diff.Realm) attemptTally {
	return attemptTally{realm: realm, held: train.Occupancy{}, stopSeen: map[diff.ReportKey]time.Time{}, exitSeen: map[diff.ReportKey]time.Time{}, stepsSeen: map[diff.ReportKey]train.Steps{}}
}

// replace counts after instead of before, the previous record of the same job. It returns the devices that before held
// if they may be free now.
func (t *attemptTally) replace(before, after train.Attempt) (freed []train.NodeDevice) {
	if before.Number != after.Number {
		delete(t.stopSeen, diff.ReportKey{Job: before.Job, Number: before.Number})
		delete(t.stepsSeen, diff.ReportKey{Job: before.Job, Number: before.Number})
	}
	had, has := before.Live() && before.Backend == t.realm.Backend, after.Live() && after.Backend == t.realm.Backend
	if had && t.realm.Owns(before) {
		t.live--
	}
	if has && t.realm.Owns(after) {
		t.live++
	}
	if had && has && train.SamePlaces(before.Places(), after.Places()) {
		return nil
	}
	if had {
		t.held.Release(before.Places())
		freed = train.NodeDevices(before.Places())
	}
	if has {
		t.held.Take(after.Places())
	}
	return freed
}

// noteSeen records when this executor first saw that an attempt has to leave, that it has exited, and its newest steps.
func (t *attemptTally) noteSeen(a train.Attempt, steps train.Steps, now time.Time) {
	key := diff.ReportKey{Job: a.Job, Number: a.Number}
	seen := t.stepsSeen[key]
	switch {
	case !a.Live() || !steps.Known():
		delete(t.stepsSeen, key)
	case !seen.Known() || seen.Epoch != steps.Epoch || seen.Done != steps.Done || seen.Total != steps.Total:
		steps.At = now
		t.stepsSeen[key] = steps
	}
	note := func(first map[diff.ReportKey]time.Time, holds bool) {
		if !holds {
			delete(first, key)
		} else if _, seen := first[key]; !seen {
			first[key] = now
		}
	}
	note(t.stopSeen, a.Live() && a.Stop != train.StopNone)
	note(t.exitSeen, a.Phase == train.PhaseExited && a.Outcome == train.OutcomeNone)
}
