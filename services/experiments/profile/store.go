package profile

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/experiments/pipeline"
)

// Store learns and looks up the ground truth.
type Store contract.GroundTruth

// mostTrainings bounds Heard: a crash loses the positions of the trainings that were being learnt, not of older ones.
const mostTrainings = 64

// WithPosition records up to which epoch a training was learnt.
func (s Store) WithPosition(h contract.LearntUpTo) Store {
	s.Heard = append(slices.DeleteFunc(slices.Clone(s.Heard), func(x contract.LearntUpTo) bool { return x.Training == h.Training }), h)
	s.Heard = s.Heard[max(len(s.Heard)-mostTrainings, 0):]
	return s
}

// PositionOf returns up to which epoch a training was learnt; false if unknown.
func (s Store) PositionOf(training string) (contract.LearntUpTo, bool) {
	i := slices.IndexFunc(s.Heard, func(x contract.LearntUpTo) bool { return x.Training == training })
	if i < 0 {
		return contract.LearntUpTo{}, false
	}
	return s.Heard[i], true
}

// mostEntries bounds the store; the workload trained longest ago goes first.
const mostEntries = 256

// Learn adds a trial's epochs and the signature of its profile, or nil. It refits the model if a signature is of an
// unknown kind, and if the store has grown by half. It does not change s.
func (s Store) Learn(t *pipeline.Trial, signature contract.Signature) Store {
	i := slices.IndexFunc(s.Entries, func(e contract.Workload) bool { return e.Workload == t.Workload })
	var known []contract.WorkloadCosts
	others := slices.Clone(s.Entries)
	if i >= 0 {
		known = []contract.WorkloadCosts{s.Entries[i].WorkloadCosts}
		if signature == nil {
			signature = s.Entries[i].Signature
		}
		others = slices.Delete(others, i, i+1)
	}
	learnt := pipeline.Learn(known, t)
	if len(learnt) == 0 {
		return s
	}
	s.Entries = append(others, contract.Workload{WorkloadCosts: learnt[0], Signature: signature})
	s.Entries = s.Entries[max(len(s.Entries)-mostEntries, 0):]
	signatures := s.signatures()
	if _, _, familiar := Model(s.Model).Classify(signature); len(signature) > 0 && (!familiar || 2*len(signatures) >= 3*s.Fitted) {
		s.Model, s.Fitted = contract.KindModel(Fit(signatures, s.Seed)), len(signatures)
	}
	return s
}

func (s Store) signatures() []contract.Signature {
	var all []contract.Signature
	for _, e := range s.Entries {
		if len(e.Signature) > 0 {
			all = append(all, e.Signature)
		}
	}
	return all
}

// Kind names the kind of a signature, empty if unknown.
func (s Store) Kind(signature contract.Signature) string {
	if cluster, _, known := Model(s.Given).Classify(signature); known {
		return "given-" + strconv.Itoa(cluster)
	}
	if cluster, _, known := Model(s.Model).Classify(signature); known {
		return "kind-" + strconv.Itoa(cluster)
	}
	return ""
}

// KindOf names the kind of a workload by a signature or, without one, by the stored signature.
func (s Store) KindOf(workload string, signature contract.Signature) string {
	i := slices.IndexFunc(s.Entries, func(e contract.Workload) bool { return e.Workload == workload })
	if signature == nil && i >= 0 {
		signature = s.Entries[i].Signature
	}
	return s.Kind(signature)
}

// Records returns the measured costs of each workload, with its kind by the present model: the input of the rules of
// package pipeline.
func (s Store) Records() []contract.WorkloadCosts {
	records := make([]contract.WorkloadCosts, len(s.Entries))
	for i, e := range s.Entries {
		records[i] = e.WorkloadCosts
		records[i].Kind = s.Kind(e.Signature)
	}
	return records
}

// Truth is the cheapest known setting of a kind of workload at a batch size.
type Truth struct {
	Kind      string                 `json:"kind"`
	BatchSize float64                `json:"batch_size"`
	Setting   contract.SettingValues `json:"setting"`
	// Cost is the mean cost of an epoch over the workloads, in Unit; Ratio is the cost over that at the default.
	Cost      float64 `json:"cost"`
	Unit      string  `json:"unit,omitempty"`
	Ratio     float64 `json:"ratio"`
	Workloads int     `json:"workloads"`
}

// Truths returns the cheapest settings of all kinds, batch sizes and units of cost. Workloads of a kind may differ in
// length, so costs are relative to the default; workloads whose default was never measured do not count.
func (s Store) Truths() []Truth {
	var all []Truth
	for _, r := range s.Records() {
		base := slices.IndexFunc(r.Measured, func(m contract.MeasuredCost) bool { return m.Setting.Equal(r.Default) })
		if r.Kind == "" || base < 0 {
			continue
		}
		for _, m := range r.Measured {
			i := slices.IndexFunc(all, func(t Truth) bool {
				return t.comparable(Truth{Kind: r.Kind, BatchSize: r.BatchSize, Unit: r.Unit}) && t.Setting.Equal(m.Setting)
			})
			if i < 0 {
				all = append(all, Truth{Kind: r.Kind, BatchSize: r.BatchSize, Unit: r.Unit, Setting: m.Setting})
				i = len(all) - 1
			}
			t := &all[i]
			t.Workloads++
			t.Cost += (m.Cost - t.Cost) / float64(t.Workloads)
			t.Ratio += (m.Cost/r.Measured[base].Cost - t.Ratio) / float64(t.Workloads)
		}
	}
	return cheapest(all)
}

// comparable reports whether two of them may be compared.
func (t Truth) comparable(other Truth) bool {
	return t.Kind == other.Kind && t.BatchSize == other.BatchSize && t.Unit == other.Unit
}

// cheapest keeps the one with the least ratio among those that may be compared.
func cheapest(all []Truth) []Truth {
	var best []Truth
	for _, t := range all {
		i := slices.IndexFunc(best, t.comparable)
		switch {
		case i < 0:
			best = append(best, t)
		case t.Ratio < best[i].Ratio:
			best[i] = t
		}
	}
	return best
}

// Portable returns the store without what holds only here: trainings elsewhere may have the same names, and were not
// learnt.
func (s Store) Portable() Store {
	s.Heard = nil
	return s
}

// Decode decodes a store from JSON, possibly from another cluster.
func Decode(data []byte) (Store, error) {
	var s Store
	var fields map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(data, &fields), json.Unmarshal(data, &s)); err != nil {
		return Store{}, fmt.Errorf("decode ground truth: %w", err)
	}
	// Also in an empty store: otherwise any object would decode as one.
	for _, always := range []string{"model", "fitted"} {
		if fields[always] == nil {
			return Store{}, fmt.Errorf("decode ground truth: it has no %q, so it is not an export", always)
		}
	}
	s = s.Portable()
	if err := s.check(); err != nil {
		return Store{}, fmt.Errorf("check ground truth: %w", err)
	}
	return s, nil
}

func (s Store) check() error {
	seen := map[string]bool{}
	for _, e := range s.Entries {
		if seen[e.Workload] {
			return fmt.Errorf("workload %q: want each once", e.Workload)
		}
		seen[e.Workload] = true
		for _, m := range e.Measured {
			if !(m.Cost > 0) || math.IsInf(m.Cost, 1) || m.Epochs < 1 {
				return fmt.Errorf("workload %q: %d epochs of cost %g: want more than 0", e.Workload, m.Epochs, m.Cost)
			}
			for name, base := range e.Default {
				if !(m.Setting[name] > 0) || !(base > 0) {
					return fmt.Errorf("workload %q: %s %g: want more than 0", e.Workload, name, m.Setting[name])
				}
			}
		}
	}
	if err := Model(s.Given).Check(); err != nil {
		return fmt.Errorf("given: %w", err)
	}
	return Model(s.Model).Check()
}
