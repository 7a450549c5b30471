package admission

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// meters are the service's metrics.
type meters struct {
	folded, illegal, rejected *prometheus.CounterVec
	admitted                  prometheus.Counter
	latency                   prometheus.Histogram
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
		differences: auto.NewGauge(prometheus.GaugeOpts{
			Name: "switchyard_admission_register_differences", Help: "Differences between the register and the fold of JOBS, found by the newest nightly comparison.",
		}),
		fill: auto.NewGaugeVec(prometheus.GaugeOpts{Name: "switchyard_bus_fill_ratio", Help: "Used share of the room of a stream or bucket."}, []string{"stream"}),
	}
}
