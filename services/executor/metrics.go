package executor

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
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
