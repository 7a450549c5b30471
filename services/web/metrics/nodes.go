package metrics

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/index"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// node is a node as people see it.
type node struct{ *view.Node }

func (n *node) labels() []string { return []string{string(n.ID)} }

// device is a device of a node, with what its meter said last.
type device struct {
	train.Device
	node  *view.Node
	board event.Board
}

func (d *device) labels() []string { return []string{string(d.node.ID), string(d.ID), d.Model} }

// machines returns the nodes, and the devices that a meter of their own measures.
func machines(x *index.Index, now time.Time) (nodes []*node, devices []*device) {
	for _, n := range view.Nodes(x, view.Query{}, now).Items {
		nodes = append(nodes, &node{n})
		if n.Power == nil {
			continue
		}
		for _, d := range n.Devices {
			if _, measured := n.Power.Devices[d.ID]; measured {
				devices = append(devices, &device{d, n, n.Power.Boards[d.ID]})
			}
		}
	}
	return nodes, devices
}

// held reports whether a job holds the device.
func (n *node) held(d train.Device) bool {
	return d.HeldBy != "" || len(d.Pods) > 0 || slices.ContainsFunc(n.Jobs, func(j view.NodeJob) bool { return slices.Contains(j.Devices, d.ID) })
}

// schedulable reports whether nothing keeps all jobs off the whole node.
func (n *node) schedulable() bool {
	return !slices.ContainsFunc(n.Exclusions, func(e train.Exclusion) bool { return e.Job == "" && len(e.Devices) == 0 })
}

func nodeMetrics() []metric[node] {
	return []metric[node]{
		{
			name: "switchyard_node_schedulable", help: "1 if the node takes jobs, 0 if it is cordoned, silent or set aside.", kind: prometheus.GaugeValue,
			of: func(n *node, put func(float64, ...string)) { put(oneIf(n.schedulable())) },
		},
		{
			name: "switchyard_node_devices", help: "Devices of the node, by kind and use.", kind: prometheus.GaugeValue, labels: []string{"kind", "use"},
			of: func(n *node, put func(float64, ...string)) {
				count := map[[2]string]float64{}
				for _, d := range n.Devices {
					kind := string(cmp.Or(d.Kind, d.ID.Kind()))
					count[[2]string{kind, "free"}] += oneIf(!n.held(d))
					count[[2]string{kind, "held"}] += oneIf(n.held(d))
				}
				for of, number := range count {
					put(number, of[:]...)
				}
			},
		},
		{
			name: "switchyard_node_power_watts", help: "Power of the node in the newest measured interval.", kind: prometheus.GaugeValue,
			of: func(n *node, put func(float64, ...string)) {
				if n.Power != nil {
					put(n.Power.Node.Watts())
				}
			},
		},
		{
			name: "switchyard_node_seen_timestamp_seconds", help: "When the node's agent was last heard of.", kind: prometheus.GaugeValue,
			of: func(n *node, put func(float64, ...string)) { put(float64(n.SeenAt.Unix())) },
		},
	}
}

func deviceMetrics() []metric[device] {
	gauge := func(name, help string, value func(*device) *float64) metric[device] {
		return metric[device]{name: name, help: help, kind: prometheus.GaugeValue, of: func(d *device, put func(float64, ...string)) {
			if v := value(d); v != nil {
				put(*v)
			}
		}}
	}
	return []metric[device]{
		gauge("switchyard_device_power_watts", "Power of a device with a meter of its own.", func(d *device) *float64 { return new(d.node.Power.Devices[d.ID].Watts()) }),
		gauge("switchyard_device_power_limit_watts", "Power limit of the device.", func(d *device) *float64 { return positive(d.board.LimitWatts) }),
		gauge("switchyard_device_utilization_ratio", "Part of the time in which the device's processors worked.", func(d *device) *float64 { return d.board.SMRatio }),
		gauge("switchyard_device_memory_used_bytes", "Memory of the device that processes hold.", func(d *device) *float64 { return positive(float64(d.board.MemoryUsed)) }),
		gauge("switchyard_device_temperature_celsius", "Temperature of the device.", func(d *device) *float64 { return positive(float64(d.board.TemperatureC)) }),
	}
}

func oneIf(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}
