package profiler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the service's metrics.
type metrics struct {
	refits    prometheus.Histogram
	models    prometheus.Counter
	estimates prometheus.Counter
}

func newMetrics() *metrics {
	return &metrics{
		refits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "switchyard_profiler_refit_seconds", Help: "Time of one fit of a job's model.", Buckets: prometheus.ExponentialBuckets(1e-5, 4, 9),
		}),
		models:    prometheus.NewCounter(prometheus.CounterOpts{Name: "switchyard_profiler_models_written_total", Help: "Models written because they changed."}),
		estimates: prometheus.NewCounter(prometheus.CounterOpts{Name: "switchyard_profiler_estimates_total", Help: "Estimates published."}),
	}
}

// register adds the metrics, and the number of followed jobs.
func (m *metrics) register(r prometheus.Registerer, jobs func() int) {
	followed := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "switchyard_profiler_followed_jobs", Help: "Jobs that have not ended.",
	}, func() float64 { return float64(jobs()) })
	r.MustRegister(m.refits, m.models, m.estimates, followed)
}

func (m *metrics) fitted(took time.Duration) { m.refits.Observe(took.Seconds()) }
