package profile

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/switchyard-dl/switchyard/services/experiments/pipeline"
)

// Entry is what is known of one workload.
type Entry struct {
	pipeline.Record
	Signature Signature `json:"signature,omitempty"`
}

// Store is the ground truth: workloads with their signatures and what their settings cost, and the model that tells their kinds apart. It holds signatures
// rather than names of clusters, so a new model loses nothing.
type Store struct {
	Seed    uint64  `json:"seed"`
	Entries []Entry `json:"entries,omitempty"`
	Model   Model   `json:"model"`
	// Fitted is how many signatures the model was made from.
	Fitted int `json:"fitted"`
	// Given are clusters that were made elsewhere and imported. They come first: Model tells apart what they do not know.
	Given Model `json:"given,omitzero"`
	// Heard are the newest epochs that were learnt, by training: what is told again after a crash is learnt once.
	Heard []Heard `json:"heard,omitempty"`
}

// Heard is up to which epoch of which attempt a training was learnt.
type Heard struct {
	Training string `json:"training"`
	Attempt  int    `json:"attempt"`
	Epoch    int    `json:"epoch"`
}

// mostHeard bounds Heard: a crash loses the notes of the trainings that were being learnt, not of older ones.
const mostHeard = 64

// Hears notes up to where a training was learnt.
func (s Store) Hears(h Heard) Store {
	s.Heard = append(slices.DeleteFunc(slices.Clone(s.Heard), func(x Heard) bool { return x.Training == h.Training }), h)
	s.Heard = s.Heard[max(len(s.Heard)-mostHeard, 0):]
	return s
}

// HeardOf is up to where a training was learnt; false where that is not noted.
func (s Store) HeardOf(training string) (Heard, bool) {
	i := slices.IndexFunc(s.Heard, func(x Heard) bool { return x.Training == training })
	if i < 0 {
		return Heard{}, false
	}
	return s.Heard[i], true
}

// mostEntries bounds the store; the workload that was trained longest ago goes first.
const mostEntries = 256

// Learn adds a trial's epochs and the signature of its profile, nil where there is none. The model is made anew when a signature is of no known kind, and
// when the store has grown by half. The store itself is left as it is.
func (s Store) Learn(t *pipeline.Trial, signature Signature) Store {
	i := slices.IndexFunc(s.Entries, func(e Entry) bool { return e.Workload == t.Workload })
	var known []pipeline.Record
	others := slices.Clone(s.Entries)
	if i >= 0 {
		known = []pipeline.Record{s.Entries[i].Record}
		if signature == nil {
			signature = s.Entries[i].Signature
		}
		others = slices.Delete(others, i, i+1)
	}
	learnt := pipeline.Learn(known, t)
	if len(learnt) == 0 {
		return s
	}
	s.Entries = append(others, Entry{learnt[0], signature})
	s.Entries = s.Entries[max(len(s.Entries)-mostEntries, 0):]
	signatures := s.signatures()
	if _, _, familiar := s.Model.Classify(signature); len(signature) > 0 && (!familiar || 2*len(signatures) >= 3*s.Fitted) {
		s.Model, s.Fitted = Fit(signatures, s.Seed), len(signatures)
	}
	return s
}

func (s Store) signatures() []Signature {
	var all []Signature
	for _, e := range s.Entries {
		if len(e.Signature) > 0 {
			all = append(all, e.Signature)
		}
	}
	return all
}

// Kind names the kind of a signature, empty where it is of none that is known.
func (s Store) Kind(signature Signature) string {
	if cluster, _, known := s.Given.Classify(signature); known {
		return "given-" + strconv.Itoa(cluster)
	}
	if cluster, _, known := s.Model.Classify(signature); known {
		return "kind-" + strconv.Itoa(cluster)
	}
	return ""
}

// KindOf names the kind of a workload by a signature or, without one, by that which is stored.
func (s Store) KindOf(workload string, signature Signature) string {
	i := slices.IndexFunc(s.Entries, func(e Entry) bool { return e.Workload == workload })
	if signature == nil && i >= 0 {
		signature = s.Entries[i].Signature
	}
	return s.Kind(signature)
}

// Records are what is known of each workload, with its kind by the present model: what the rules of package pipeline want.
func (s Store) Records() []pipeline.Record {
	records := make([]pipeline.Record, len(s.Entries))
	for i, e := range s.Entries {
		records[i] = e.Record
		records[i].Kind = s.Kind(e.Signature)
	}
	return records
}

// Truth is the cheapest setting known of a kind of workload at a batch size.
type Truth struct {
	Kind      string           `json:"kind"`
	BatchSize float64          `json:"batch_size"`
	Setting   pipeline.Setting `json:"setting"`
	// Cost is that of an epoch in Unit, on average over the workloads; Ratio is the cost over that at the default.
	Cost      float64 `json:"cost"`
	Unit      string  `json:"unit,omitempty"`
	Ratio     float64 `json:"ratio"`
	Workloads int     `json:"workloads"`
}

// Truths are the cheapest settings of all kinds, batch sizes and units of cost. Workloads of a kind may be longer or shorter, so costs are compared with that at the default;
// a workload whose default was never measured has no say.
func (s Store) Truths() []Truth {
	var all []Truth
	for _, r := range s.Records() {
		base := slices.IndexFunc(r.Measured, func(m pipeline.Measured) bool { return m.Setting.Equal(r.Default) })
		if r.Kind == "" || base < 0 {
			continue
		}
		for _, m := range r.Measured {
			i := slices.IndexFunc(all, func(t Truth) bool {
				return t.alike(Truth{Kind: r.Kind, BatchSize: r.BatchSize, Unit: r.Unit}) && t.Setting.Equal(m.Setting)
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

// alike says whether two of them may be compared.
func (t Truth) alike(other Truth) bool {
	return t.Kind == other.Kind && t.BatchSize == other.BatchSize && t.Unit == other.Unit
}

// cheapest keeps the one of the least ratio among those that may be compared.
func cheapest(all []Truth) []Truth {
	var best []Truth
	for _, t := range all {
		i := slices.IndexFunc(best, t.alike)
		switch {
		case i < 0:
			best = append(best, t)
		case t.Ratio < best[i].Ratio:
			best[i] = t
		}
	}
	return best
}

// Portable is the store without what is true only here: trainings elsewhere may have the same names, and were not learnt.
func (s Store) Portable() Store {
	s.Heard = nil
	return s
}

// Decode reads a store that was written as JSON, maybe elsewhere.
func Decode(data []byte) (Store, error) {
	var s Store
	var fields map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(data, &fields), json.Unmarshal(data, &s)); err != nil {
		return Store{}, fmt.Errorf("decode ground truth: %w", err)
	}
	for _, always := range []string{"model", "fitted"} { // of an empty store, too: any other object would read as one
		if fields[always] == nil {
			return Store{}, fmt.Errorf("decode ground truth: it has no %q, so it is no export of one", always)
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
	if err := s.Given.Check(); err != nil {
		return fmt.Errorf("given: %w", err)
	}
	return s.Model.Check()
}
