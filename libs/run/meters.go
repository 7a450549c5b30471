package run

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/disk"
)

// newBusMeter makes the metrics of a service's connections.
func newBusMeter(r prometheus.Registerer) *bus.Meter {
	auto := promauto.With(r)
	wrote := auto.NewHistogram(prometheus.HistogramOpts{
		Name: "switchyard_bus_write_seconds", Help: "Time from a write to its acknowledgement, with a sync of the bus's disk.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
	})
	reconnects := auto.NewCounter(prometheus.CounterOpts{Name: "switchyard_bus_reconnects_total", Help: "Times that the bus was away and came back."})
	aside := auto.NewCounterVec(prometheus.CounterOpts{Name: "switchyard_bus_poison_total", Help: "Messages that no repetition makes good, set aside in POISON."}, []string{"consumer"})
	m := &bus.Meter{
		Wrote: func(took time.Duration) { wrote.Observe(took.Seconds()) }, Reconnected: reconnects.Inc,
		SetAside: func(consumer string, messages int) { aside.WithLabelValues(consumer).Add(float64(messages)) },
	}
	r.MustRegister(lags{m})
	return m
}

// lags collects how far consumers are behind. The age of the oldest message grows while it is not handled.
type lags struct{ meter *bus.Meter }

// Describe implements prometheus.Collector: the consumers are not known before they run.
func (l lags) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (l lags) Collect(metrics chan<- prometheus.Metric) {
	labels := []string{"consumer"}
	pending := prometheus.NewDesc("switchyard_bus_consumer_pending", "Messages that a consumer has still to handle.", labels, nil)
	oldest := prometheus.NewDesc("switchyard_bus_consumer_oldest_seconds", "Age of the oldest message that a consumer has still to handle.", labels, nil)
	for _, lag := range l.meter.Lags() {
		age := 0.0
		if !lag.OldestStored.IsZero() {
			age = max(time.Since(lag.OldestStored).Seconds(), 0)
		}
		metrics <- prometheus.MustNewConstMetric(pending, prometheus.GaugeValue, float64(lag.Pending), lag.Consumer)
		metrics <- prometheus.MustNewConstMetric(oldest, prometheus.GaugeValue, age, lag.Consumer)
	}
}

// meterDisk adds the metrics of the data folder's disk.
func meterDisk(r prometheus.Registerer, dir string) {
	gauge := func(name, help string, value func(disk.Room) float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			room, err := disk.Of(dir)
			if err != nil {
				return 0
			}
			return value(room)
		}))
	}
	gauge("switchyard_disk_free_bytes", "Room that is left on the disk of the data folder.", func(room disk.Room) float64 { return float64(room.Free) })
	gauge("switchyard_disk_scarce", "1 while so little is left on the disk of the data folder that no job is started.", func(room disk.Room) float64 {
		if room.Total > 0 && room.Scarce() {
			return 1
		}
		return 0
	})
}
