package search

import (
	"errors"
	"fmt"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/contract"
)

// Suggest returns the point of the next trial of a search whose client runs the trials, each to its end. Its errors
// are written for the author of the client.
func Suggest(q contract.SuggestionRequest) (contract.Suggestion, error) {
	if !slices.Contains([]contract.SearchAlgorithm{Random, Grid, GP}, q.Algorithm) {
		return contract.Suggestion{}, fmt.Errorf("algorithm %q: want random, grid or gp; `switchyard tune run` also has hyperband and asha, which pause trials", q.Algorithm)
	}
	if len(q.Trials) > contract.MostTold {
		return contract.Suggestion{}, fmt.Errorf("trials: want at most %d, found %d; `switchyard tune run` takes larger searches", contract.MostTold, len(q.Trials))
	}
	const whole = 1
	s, err := New(q.Space, contract.SearchConfig{Algorithm: q.Algorithm, Trials: MostTrials, Seed: q.Seed, Levels: q.Levels, MaxEpochs: whole})
	if err != nil {
		return contract.Suggestion{}, err
	}
	trials := make([]Trial, len(q.Trials))
	for i, told := range q.Trials {
		if told.Failed && told.Value != nil {
			return contract.Suggestion{}, fmt.Errorf("trials[%d]: %w", i, errFailedWithValue)
		}
		trials[i] = Trial{ID: i, Params: told.Params, Epochs: whole, State: Running}
		switch {
		case told.Failed:
			trials[i].State = Failed
		case told.Value != nil:
			score := *told.Value
			if q.Minimise {
				score = -score
			}
			trials[i].State, trials[i].Results = Ended, []Result{{Epoch: whole, Score: score}}
		}
	}
	for _, action := range s.Next(trials, 1) {
		if action.Verb == Start {
			return contract.Suggestion{Params: action.Params}, nil
		}
	}
	return contract.Suggestion{Over: true}, nil
}

var errFailedWithValue = errors.New("a trial that failed has no value")
