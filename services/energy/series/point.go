// Package series says what becomes of facts in the time-series database: measurements, tags and fields, and how they are thinned out. It writes nothing.
//
// A point is the same however often its fact is read: its time is the end of the interval or the time of the fact, its tags never change afterwards, so that writing
// it again overwrites it. A job's id is a field, since tags are for few values; the tag shard keeps apart points of jobs that agree in all other tags.
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

// Owner is who a job belongs to.
type Owner struct {
	Tenant string
	User   string
}

// Surroundings are what an interval does not say itself.
type Surroundings struct {
	Cluster string
	Device  func(train.DeviceID) train.Device
	Owner   func(train.JobID) Owner
	Price   tariff.Price
}

// unknown stands in a tag for what nobody said: a tag cannot be empty.
const unknown = "unknown"

// tag makes a word a tag's value: the database's own notation has no way to write line ends in one, nor a backslash at its end.
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

// wholeNode says whether a meter stands before all of a node: what it shows contains what the others show.
func wholeNode(m event.Meter) bool { return m.Component == event.ComponentNode }
