package conduct

import (
	"maps"
	"reflect"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// Recur records the findings of earlier experiments of the same group: the same job, searched in the same space for the
// same objective under the same constraints. Only in mode pipetune does a known result replace the search.
func (r *Record) Recur(earlier []Record) {
	if r.Experiment.Group == "" || r.Experiment.Mode != file.PipeTune {
		return
	}
	var newest *Record
	for i := range earlier {
		old := &earlier[i]
		if old.State == Finished && old.alike(r) && (newest == nil || old.EndedAt.After(newest.EndedAt)) {
			newest = old
		}
	}
	if newest == nil {
		return
	}
	if best, _, ok := newest.Best(); ok {
		r.Recurs = &contract.Recurrence{Of: newest.ID, Params: maps.Clone(best.Params), Modelled: newest.modelled()}
	}
}

func (r *Record) alike(other *Record) bool {
	a, b := r.Experiment, other.Experiment
	return a.Group == b.Group && a.Mode == b.Mode && a.Objective == b.Objective && reflect.DeepEqual(a.Constraints, b.Constraints) &&
		reflect.DeepEqual(a.Space, b.Space) && reflect.DeepEqual(a.Job, b.Job)
}

// searcher returns the searcher of the trials.
func (r *Record) searcher() (search.Searcher, error) {
	if r.Recurs != nil {
		return once{r.Recurs.Params, r.Experiment.Search.MaxEpochs}, nil
	}
	return r.experiment().Searcher()
}

// once is the search of an experiment with a known outcome: one trial, trained to its end.
type once struct {
	params search.Params
	epochs int
}

// Next starts that trial.
func (o once) Next(trials []search.Trial, free int) []search.Action {
	if len(trials) > 0 || free < 1 {
		return nil
	}
	return []search.Action{{Verb: search.Start, Params: o.params, Epochs: o.epochs}}
}
