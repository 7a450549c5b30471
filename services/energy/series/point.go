// Package series turns facts into points of the time-series database: measurements, tags, fields, and their
// downsampling. It writes nothing.
//
// A point is the same however often its fact is read: its time is the end of the interval or the time of the fact, and
// its tags never change afterwards, so writing it again overwrites it. A job's id is a field, since tags are for few
// values; the tag shard separates points of jobs that agree in all other tags.
package series

import (
	"cmp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/energy/tariff"
)

// The measurements.
const (
	GPUPower        = "gpu_power"
	CPUEnergy       = "cpu_energy"
	NodePower       = "node_power"
	ComponentEnergy = "component_energy"
	JobEnergy       = "job_energy"
	JobEpoch        = "job_epoch"
	JobEvent        = "job_event"
	PlanDecision    = "plan_decision"
	Grid            = "grid"
	NetProbes       = "net_probes"
	NetLink         = "net_link"
)

// Point is one row: a field is a float64, an int64, a bool or a string.
type Point struct {
	Measurement string
	Tags        map[string]string
	Fields      map[string]any
	Time        time.Time
}

// Owner is the owner of a job.
type Owner struct {
	Tenant string
	User   string
}

// Surroundings are facts about an interval that it does not contain itself.
type Surroundings struct {
	Cluster string
	Device  func(train.DeviceID) train.Device
	Owner   func(train.JobID) Owner
	Price   tariff.Price
}

// unknown is the tag for a missing value: a tag cannot be empty.
const unknown = "unknown"

// tag turns a word into a tag value: the line protocol cannot represent line ends in a tag, nor a backslash at its end.
func tag(s string) string {
	s = strings.TrimRight(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s), `\ `)
	return cmp.Or(s, unknown)
}

func shard(n int) string { return strconv.Itoa(n) }

// wholeNode reports whether a meter measures the whole node: its reading includes those of the others.
func wholeNode(m event.Meter) bool { return m.Component == event.ComponentNode }
