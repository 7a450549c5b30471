package profiler

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the service's metrics.
type metrics struct {
	refits    prometheus.Histogram
	models    prometheus.Counter
	estimates prometheus.Counter
}

func newMetrics(r prometheus.Registerer, followed func() int) *metrics {
	auto := promauto.With(r)
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "switchyard_profiler_followed_jobs", Help: "Jobs that have not ended."},
		func() float64 { return float64(followed()) })
	return &metrics{
		refits: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "switchyard_profiler_refit_seconds", Help: "Time of one fit of a job's model.", Buckets: prometheus.ExponentialBuckets(1e-5, 4, 9),
		}),
		models:    auto.NewCounter(prometheus.CounterOpts{Name: "switchyard_profiler_models_written_total", Help: "Models written because they changed."}),
		estimates: auto.NewCounter(prometheus.CounterOpts{Name: "switchyard_profiler_estimates_total", Help: "Estimates published."}),
	}
}
