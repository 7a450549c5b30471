package curve

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// InterferenceRecord holds what was measured of jobs that share one type of device in one environment.
type InterferenceRecord struct {
	// Device is the type of device, Under the environment.
	Device string `json:"device"`
	Under  string `json:"under,omitempty"`
	// Through is the stream sequence of the last fact included.
	Through uint64 `json:"through"`
	// Alone are step times of jobs that had the device to themselves, the newest kind last.
	Alone []Pace `json:"alone,omitempty"`
	// Open are step times of jobs beside others that were not yet measured alone.
	Open []Pace `json:"open,omitempty"`
	// Known are the rates that follow.
	Known *Interference `json:"known"`
}

// Pace is the mean step time of jobs of a kind beside others, or alone if Others is empty.
type Pace struct {
	Self        Kind    `json:"self"`
	Others      []Kind  `json:"others,omitempty"`
	StepSeconds float64 `json:"step_seconds"`
	// Count is the number of measurements in the mean, at most maxCount.
	Count int `json:"count"`
}

// maxPaces bounds the number of step times, for Alone and for Open each.
const maxPaces = 500

// NewInterferenceRecord returns an empty record. A record of the same type of device in another environment serves as a
// hint; nil means no hint.
func NewInterferenceRecord(device, under string, hint *InterferenceRecord) *InterferenceRecord {
	var known []InterferenceSample
	if hint != nil {
		known = hint.rates().samples
	}
	return &InterferenceRecord{Device: device, Under: under, Known: NewInterference(under, known)}
}

// NewestInterferenceRecord returns the record of a type of device that has come furthest in the stream, in any
// environment, or nil.
func NewestInterferenceRecord(records map[string]*InterferenceRecord, device string) *InterferenceRecord {
	var newest *InterferenceRecord
	for _, key := range slices.Sorted(maps.Keys(records)) {
		if r := records[key]; r.Device == device && (newest == nil || r.Through > newest.Through) {
			newest = r
		}
	}
	return newest
}

// rates returns the known rates; a stored record may lack them.
func (m *InterferenceRecord) rates() *Interference {
	if m.Known == nil {
		m.Known = NewInterference(m.Under, nil)
	}
	return m.Known
}

// Measured records a step time of a job alone, or beside others that were there during the whole measurement.
func (m *InterferenceRecord) Measured(self Kind, others []Kind, stepSeconds float64) {
	if !(stepSeconds > 0) || math.IsInf(stepSeconds, 0) {
		return
	}
	if len(others) == 0 {
		m.Alone = addPace(m.Alone, Pace{Self: self, StepSeconds: stepSeconds})
		m.resolveOpen(self)
		return
	}
	if alone, known := m.StepAlone(self); known {
		m.rates().Measured(self, others, alone/stepSeconds)
		return
	}
	m.Open = addPace(m.Open, Pace{Self: self, Others: others, StepSeconds: stepSeconds})
}

// clearMargin is how much faster than now a job must have run beside others before to rule them out as the cause of its
// slowdown.
const clearMargin = 1.1

// MeasuredOn records a step time of a job on several devices with different co-runners. It blames one set of co-runners
// only if none of the others can have held up the job: they were measured before and let it run clearly faster.
func (m *InterferenceRecord) MeasuredOn(self Kind, coRunners [][]Kind, stepSeconds float64) {
	if len(coRunners) == 0 {
		m.Measured(self, nil, stepSeconds)
		return
	}
	suspects := coRunners
	if alone, known := m.StepAlone(self); known {
		suspects = slices.DeleteFunc(slices.Clone(coRunners), func(others []Kind) bool {
			rate, _ := m.rates().RateAmong(self, others)
			return len(coRunners) > 1 && m.rates().Measurements(self, others) > 0 && rate > clearMargin*alone/stepSeconds
		})
	}
	if len(suspects) == 1 {
		m.Measured(self, suspects[0], stepSeconds)
	}
}

// resolveOpen turns step times measured beside others before the kind ran alone into rates.
func (m *InterferenceRecord) resolveOpen(self Kind) {
	alone, _ := m.StepAlone(self)
	m.Open = slices.DeleteFunc(m.Open, func(p Pace) bool {
		if p.Self == self {
			m.rates().Measured(self, p.Others, alone/p.StepSeconds)
		}
		return p.Self == self
	})
}

// StepAlone returns the mean step time of a kind alone on the device; known is false if that was not measured.
func (m *InterferenceRecord) StepAlone(self Kind) (stepSeconds float64, known bool) {
	i := slices.IndexFunc(m.Alone, func(p Pace) bool { return p.Self == self })
	if i < 0 {
		return 0, false
	}
	return m.Alone[i].StepSeconds, true
}

// OutOfMemory records that a job did not fit beside another.
func (m *InterferenceRecord) OutOfMemory(self, other Kind) { m.rates().OutOfMemory(self, other) }

// addPace folds a measurement into the mean of its kind and co-runners, and moves that to the end. The first goes if
// there are too many.
func addPace(paces []Pace, p Pace) []Pace {
	p.Count = 1
	if i := slices.IndexFunc(paces, func(o Pace) bool { return o.Self == p.Self && slices.Equal(o.Others, p.Others) }); i >= 0 {
		before := paces[i]
		p.Count = min(before.Count+1, maxCount)
		p.StepSeconds = before.StepSeconds + (p.StepSeconds-before.StepSeconds)/float64(p.Count)
		paces = slices.Delete(paces, i, i+1)
	}
	paces = append(paces, p)
	return paces[max(len(paces)-maxPaces, 0):]
}

// Clone returns a copy that later measurements do not change.
func (m *InterferenceRecord) Clone() InterferenceRecord {
	c := *m
	c.Alone, c.Open, c.Known = slices.Clone(m.Alone), slices.Clone(m.Open), NewInterference(m.Under, m.rates().samples)
	return c
}

// InterferenceKey returns the key of the record of a device.
func InterferenceKey(d *train.Device) string {
	return fmt.Sprintf("d%x.v%x", d.Type(), d.Driver)
}
