package curve

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Meetings is what jobs on one type of device, in one environment, have shown of each other.
type Meetings struct {
	// Device is the type of device, Under the environment.
	Device string `json:"device"`
	Under  string `json:"under,omitempty"`
	// Through is the place in the stream of the last fact that is in here.
	Through uint64 `json:"through"`
	// Alone are step times of jobs that had the device for themselves, the newest kind last.
	Alone []Pace `json:"alone,omitempty"`
	// Open are step times beside others of jobs that were not measured alone yet.
	Open []Pace `json:"open,omitempty"`
	// Known are the rates that follow.
	Known *Interference `json:"known"`
}

// Pace is the mean of the step times that jobs of a kind had beside others, or alone where there are none.
type Pace struct {
	Self        Kind    `json:"self"`
	Others      []Kind  `json:"others,omitempty"`
	StepSeconds float64 `json:"step_seconds"`
	// Count is how many measurements are in the mean, at most maxCount.
	Count int `json:"count"`
}

// maxPaces bounds how many step times are kept, alone and open each.
const maxPaces = 500

// NewMeetings begins a record. What is known of the type of device in another environment, nil where nothing is, is a hint.
func NewMeetings(device, under string, hint *Meetings) *Meetings {
	var known []Encounter
	if hint != nil {
		known = hint.rates().encounters
	}
	return &Meetings{Device: device, Under: under, Known: NewInterference(under, known)}
}

// NewestMeetings is, of records by key, that of a type of device which has come furthest in the stream, in whatever environment; nil where there is none.
func NewestMeetings(records map[string]*Meetings, device string) *Meetings {
	var newest *Meetings
	for _, key := range slices.Sorted(maps.Keys(records)) {
		if r := records[key]; r.Device == device && (newest == nil || r.Through > newest.Through) {
			newest = r
		}
	}
	return newest
}

// rates are what is known; a stored record may lack it.
func (m *Meetings) rates() *Interference {
	if m.Known == nil {
		m.Known = NewInterference(m.Under, nil)
	}
	return m.Known
}

// Measured learns a step time of a job alone, or beside others that were there all the time.
func (m *Meetings) Measured(self Kind, others []Kind, stepSeconds float64) {
	if !(stepSeconds > 0) || math.IsInf(stepSeconds, 0) {
		return
	}
	if len(others) == 0 {
		m.Alone = folding(m.Alone, Pace{Self: self, StepSeconds: stepSeconds})
		m.settle(self)
		return
	}
	if alone, known := m.StepAlone(self); known {
		m.rates().Measured(self, others, alone/stepSeconds)
		return
	}
	m.Open = folding(m.Open, Pace{Self: self, Others: others, StepSeconds: stepSeconds})
}

// clearly is by how much faster a job must have been beside others for these not to be what holds it up now.
const clearly = 1.1

// MeasuredOn learns a step time of a job on several devices with different companies. It tells of one of them only if no other can have held up the job: they
// were measured, and let it run clearly faster.
func (m *Meetings) MeasuredOn(self Kind, companies [][]Kind, stepSeconds float64) {
	if len(companies) == 0 {
		m.Measured(self, nil, stepSeconds)
		return
	}
	suspects := companies
	if alone, known := m.StepAlone(self); known {
		suspects = slices.DeleteFunc(slices.Clone(companies), func(others []Kind) bool {
			rate, _ := m.rates().RateAmong(self, others)
			return len(companies) > 1 && m.rates().Measurements(self, others) > 0 && rate > clearly*alone/stepSeconds
		})
	}
	if len(suspects) == 1 {
		m.Measured(self, suspects[0], stepSeconds)
	}
}

// settle makes rates of what was measured of a kind before it was alone.
func (m *Meetings) settle(self Kind) {
	alone, _ := m.StepAlone(self)
	m.Open = slices.DeleteFunc(m.Open, func(p Pace) bool {
		if p.Self == self {
			m.rates().Measured(self, p.Others, alone/p.StepSeconds)
		}
		return p.Self == self
	})
}

// StepAlone is the mean step time of a kind that has the device for itself, as far as that was measured.
func (m *Meetings) StepAlone(self Kind) (stepSeconds float64, known bool) {
	i := slices.IndexFunc(m.Alone, func(p Pace) bool { return p.Self == self })
	if i < 0 {
		return 0, false
	}
	return m.Alone[i].StepSeconds, true
}

// OutOfMemory learns that a job did not fit beside another.
func (m *Meetings) OutOfMemory(self, other Kind) { m.rates().OutOfMemory(self, other) }

// folding adds a measurement to the mean of its like, which goes to the end: the first is forgotten where there are too many.
func folding(paces []Pace, p Pace) []Pace {
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

// Clone is a copy that stays as it is when the record learns more.
func (m *Meetings) Clone() Meetings {
	c := *m
	c.Alone, c.Open, c.Known = slices.Clone(m.Alone), slices.Clone(m.Open), NewInterference(m.Under, m.rates().encounters)
	return c
}

// MeetingsKey is the key of the record to which a device belongs.
func MeetingsKey(d *train.Device) string {
	return fmt.Sprintf("d%x.v%x", d.Type(), d.Driver)
}
