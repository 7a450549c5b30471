package planner

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// meters are the service's metrics.
type meters struct {
	decide      prometheus.Histogram
	generation  prometheus.Gauge
	waiting     prometheus.Gauge
	devices     prometheus.Gauge
	conflicts   prometheus.Counter
	unpublished prometheus.Counter
	recorded    prometheus.Counter
	unrecorded  prometheus.Counter
	predictions *prometheus.CounterVec
	excluded    *prometheus.GaugeVec
}

func newMeters(r prometheus.Registerer) *meters {
	auto := promauto.With(r)
	gauge := func(name, help string) prometheus.Gauge {
		return auto.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &meters{
		decide: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "switchyard_planner_decide_seconds", Help: "Time of one decision, without telling it.", Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}),
		generation:  gauge("switchyard_planner_plan_generation", "Generation of the newest plan."),
		waiting:     gauge("switchyard_planner_waiting_jobs", "Jobs that the newest plan gives nothing."),
		devices:     gauge("switchyard_planner_allocated_devices", "Devices that the newest plan gives away."),
		conflicts:   counter("switchyard_planner_conflicts_total", "Plans that were not published because another planner was faster."),
		unpublished: counter("switchyard_planner_unpublished_total", "Plans that the bus did not store, since they were too large or it did not answer. The plan before stands."),
		recorded:    counter("switchyard_planner_inputs_recorded_total", "Published plans whose input was recorded."),
		unrecorded:  counter("switchyard_planner_inputs_lost_total", "Published plans whose input was not recorded: the bus was too slow, or refused it."),
		predictions: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "switchyard_planner_predictions_total",
			Help: "First predictions of starts and ends of jobs, by whether it happened before, inside or after the interval, which should hold eight of ten.",
		}, []string{"of", "happened"}),
		excluded: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "switchyard_planner_excluded", Help: "Nodes and devices that get no jobs, by reason: NodeCordoned, NodeSilent, NodeSetAside and the like.",
		}, []string{"reason"}),
	}
	for _, of := range []string{"start", "finish"} {
		for _, at := range []string{"before", "inside", "after"} {
			m.predictions.WithLabelValues(of, at)
		}
	}
	return m
}

func (m *meters) decided(took time.Duration, excluded []train.Exclusion) {
	m.decide.Observe(took.Seconds())
	count := map[string]float64{}
	for _, e := range excluded {
		if e.Job == "" {
			count[e.Reason.Code]++
		}
	}
	m.excluded.Reset()
	for reason, n := range count {
		m.excluded.WithLabelValues(reason).Set(n)
	}
}

func (m *meters) published(p train.Plan) {
	devices := 0
	for _, a := range p.Allocations {
		devices += len(train.AllDevices(a.Places()))
	}
	m.generation.Set(float64(p.Generation))
	m.waiting.Set(float64(len(p.Waiting)))
	m.devices.Set(float64(devices))
}

// happened counts a predicted start or finish.
func (m *meters) happened(of string, predicted train.Moment, at time.Time) {
	m.predictions.WithLabelValues(of, when(predicted, at)).Inc()
}
