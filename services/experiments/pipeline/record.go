package pipeline

import (
	"cmp"
	"math"
	"slices"
)

// Record is what the trials of one workload taught.
type Record struct {
	Workload  string  `json:"workload"`
	Kind      string  `json:"kind,omitempty"`
	BatchSize float64 `json:"batch_size,omitempty"`
	// Unit is what costs are in.
	Unit string `json:"unit,omitempty"`
	// Default is where the trials would have stayed without us.
	Default  Setting    `json:"default"`
	Measured []Measured `json:"measured,omitempty"`
	// Failed are the settings at which a trial could not run.
	Failed []Setting `json:"failed,omitempty"`
}

// Measured is the mean cost of the epochs at one setting.
type Measured struct {
	Setting Setting `json:"setting"`
	Cost    float64 `json:"cost"`
	Epochs  int     `json:"epochs"`
}

// mostRecords bounds what is remembered; the workload that was trained longest ago goes first.
const mostRecords = 64

// mostEpochs bounds what the past weighs: a machine that has become slower is noticed.
const mostEpochs = 20

// Learn adds what a trial's epochs showed: its workload's record, with what is new, becomes the last one. What is known is left as it is.
func Learn(known []Record, t *Trial) []Record {
	r := Record{Workload: t.Workload, Kind: t.Kind, BatchSize: t.BatchSize, Unit: t.Unit, Default: t.Default()}
	others := slices.DeleteFunc(slices.Clone(known), func(k Record) bool {
		if k.Workload == t.Workload {
			r.Measured, r.Failed = slices.Clone(k.Measured), slices.Clone(k.Failed)
			r.Kind = cmp.Or(r.Kind, k.Kind)
		}
		return k.Workload == t.Workload
	})
	for _, e := range t.Ended {
		r.add(e)
	}
	for _, s := range t.Failed {
		r.add(Epoch{Setting: s, Failed: true})
	}
	if len(r.Measured)+len(r.Failed) > 0 {
		others = append(others, r)
	}
	return others[max(len(others)-mostRecords, 0):]
}

// ownRecord is that of the trial's workload, empty where nothing is known of it.
func ownRecord(t *Trial, known []Record) Record {
	if i := slices.IndexFunc(known, func(r Record) bool { return r.Workload == t.Workload }); i >= 0 {
		return known[i]
	}
	return Record{Workload: t.Workload, Default: t.Default()}
}

func (r *Record) add(e Epoch) {
	i := r.find(e.Setting)
	switch {
	case e.Failed:
		if !slices.ContainsFunc(r.Failed, e.Setting.Equal) {
			r.Failed = append(r.Failed, e.Setting)
		}
	case !(e.Cost > 0) || math.IsInf(e.Cost, 1):
	case i < 0:
		r.Measured = append(r.Measured, Measured{Setting: e.Setting, Cost: e.Cost, Epochs: 1})
	default:
		m := &r.Measured[i]
		m.Epochs = min(m.Epochs+1, mostEpochs)
		m.Cost += (e.Cost - m.Cost) / float64(m.Epochs)
	}
}

// find gives the place of a setting among those measured, or -1.
func (r *Record) find(s Setting) int {
	return slices.IndexFunc(r.Measured, func(m Measured) bool { return m.Setting.Equal(s) })
}

// ruledOut says whether a setting must fail because another one did: it has moved at least as far from the default, the same way, in each factor that the
// failed one moved.
func (r *Record) ruledOut(s Setting) bool {
	beyond := func(failed Setting) bool {
		moved := false
		for name, base := range r.Default {
			far, here := math.Log2(failed[name]/base), math.Log2(s[name]/base)
			if far > 0 && here < far || far < 0 && here > far {
				return false
			}
			moved = moved || far != 0
		}
		return moved
	}
	return slices.ContainsFunc(r.Failed, beyond)
}
