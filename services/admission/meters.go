package admission

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/register"
)

// meters are the service's metrics.
type meters struct {
	folded, illegal, rejected *prometheus.CounterVec
	admitted                  prometheus.Counter
	latency, waited           prometheus.Histogram
	cancelled                 prometheus.Histogram
	short                     prometheus.Counter
	differences               prometheus.Gauge
	fill                      *prometheus.GaugeVec
}

func newMeters(r prometheus.Registerer) *meters {
	auto := promauto.With(r)
	counter := func(name, help, label string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	return &meters{
		folded:   counter("switchyard_admission_facts_total", "Facts folded into the register.", "fact"),
		illegal:  counter("switchyard_admission_illegal_facts_total", "Facts that cannot happen in the job's state and changed nothing.", "fact"),
		rejected: counter("switchyard_admission_rejections_total", "Reasons for which submissions were refused; a submission may have several.", "code"),
		admitted: auto.NewCounter(prometheus.CounterOpts{Name: "switchyard_admission_admitted_total", Help: "Jobs accepted."}),
		latency: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "switchyard_admission_submit_seconds", Help: "Time from storing a submission to storing its acceptance.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		}),
		waited: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "switchyard_admission_wait_seconds", Help: "Time from the submission of a job to its first start.",
			Buckets: []float64{1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 72 * 3600},
		}),
		differences: auto.NewGauge(prometheus.GaugeOpts{
			Name: "switchyard_admission_register_differences", Help: "Differences between the register and the fold of JOBS, found by the newest nightly comparison.",
		}),
		cancelled: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "switchyard_admission_cancel_seconds", Help: "Time from a request to cancel a job to the job's end.", Buckets: prometheus.ExponentialBuckets(0.01, 2.5, 12),
		}),
		short: auto.NewCounter(prometheus.CounterOpts{
			Name: "switchyard_admission_ended_short_total", Help: "Jobs that succeeded with fewer epochs than asked for, and had not converged.",
		}),
		fill: auto.NewGaugeVec(prometheus.GaugeOpts{Name: "switchyard_bus_fill_ratio", Help: "Used share of the room of a stream or bucket."}, []string{"stream"}),
	}
}

// happened counts what operators watch in the starts and ends of jobs.
func (m *meters) happened(f register.Fact, job train.Job) {
	if f.Name == event.FactStarted && job.StartedAt.Equal(f.Time) {
		m.waited.Observe(max(f.Time.Sub(job.SubmittedAt), 0).Seconds())
	}
	if !job.State.Terminal() {
		return
	}
	if f.Name == event.FactSucceeded && job.EpochsDone < job.Spec.MaxEpochs && job.ConvergedEpochs == 0 {
		m.short.Inc()
	}
	asked := slices.IndexFunc(job.History, func(c train.Change) bool { return c.Fact == event.FactCancelRequested })
	if asked >= 0 && f.Name == event.FactCancelled {
		m.cancelled.Observe(max(f.Time.Sub(job.History[asked].At), 0).Seconds())
	}
}
