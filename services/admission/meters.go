package admission

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// meters are the service's metrics.
type meters struct {
	facts    *prometheus.CounterVec
	nothing  *prometheus.CounterVec
	refusals *prometheus.CounterVec
	admits   prometheus.Counter
	latency  prometheus.Histogram
	fill     *prometheus.GaugeVec
}

func newMeters() *meters {
	return &meters{
		facts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "switchyard_admission_facts_total", Help: "Facts folded into the register.",
		}, []string{"fact"}),
		nothing: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "switchyard_admission_illegal_facts_total", Help: "Facts that cannot happen in the job's state and changed nothing.",
		}, []string{"fact"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "switchyard_admission_rejections_total", Help: "Reasons for which submissions were refused; a submission may have several.",
		}, []string{"code"}),
		admits: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "switchyard_admission_admitted_total", Help: "Jobs accepted.",
		}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "switchyard_admission_submit_seconds", Help: "Time from storing a submission to storing its acceptance.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		}),
		fill: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "switchyard_bus_fill_ratio", Help: "Used share of the room of a stream or bucket.",
		}, []string{"stream"}),
	}
}

func (m *meters) register(r prometheus.Registerer) {
	r.MustRegister(m.facts, m.nothing, m.refusals, m.admits, m.latency, m.fill)
}

func (m *meters) folded(fact string)   { m.facts.WithLabelValues(fact).Inc() }
func (m *meters) illegal(fact string)  { m.nothing.WithLabelValues(fact).Inc() }
func (m *meters) rejected(code string) { m.refusals.WithLabelValues(code).Inc() }

func (m *meters) filled(stream string, share float64) { m.fill.WithLabelValues(stream).Set(share) }

func (m *meters) admitted(after time.Duration) {
	m.admits.Inc()
	m.latency.Observe(max(after, 0).Seconds())
}
