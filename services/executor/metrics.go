package executor

import "github.com/prometheus/client_golang/prometheus"

// metrics are the service's own metrics.
type metrics struct {
	running      prometheus.Gauge
	starts       prometheus.Counter
	losses       prometheus.Counter
	refused      prometheus.Counter
	outcomes     *prometheus.CounterVec
	startLatency prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		running: prometheus.NewGauge(prometheus.GaugeOpts{Name: "switchyard_executor_attempts_running", Help: "Attempts that hold devices."}),
		starts:  prometheus.NewCounter(prometheus.CounterOpts{Name: "switchyard_executor_starts_total", Help: "Attempts that were claimed."}),
		losses:  prometheus.NewCounter(prometheus.CounterOpts{Name: "switchyard_executor_losses_total", Help: "Attempts whose supervisor vanished."}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "switchyard_executor_plans_refused_total", Help: "Plans older than the newest accepted plan."}),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "switchyard_executor_outcomes_total", Help: "Attempts that ended, by outcome.",
		}, []string{"outcome"}),
		startLatency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "switchyard_executor_start_latency_seconds", Help: "From the claim of an attempt to its running supervisor.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 12),
		}),
	}
	r.MustRegister(m.running, m.starts, m.losses, m.refused, m.outcomes, m.startLatency)
	return m
}
