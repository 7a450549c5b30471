package conduct

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
)

// MostEpochs bounds the epochs of all trials of an experiment: each is kept in its record.
const MostEpochs = 10_000

// MostBytes is how large a record grows before its experiment is stopped: what becomes of the jobs that it has then must still fit into what is stored.
const MostBytes = event.MaxStoredBytes / 4 * 3

// Check says everything that is wrong with a submission that did not come from a file.
func Check(id string, e file.Experiment) error {
	var errs []error
	if len(id) > file.LongestName {
		errs = append(errs, fmt.Errorf("id %.80q: want at most %d characters, to leave room for the numbers of trials", id, file.LongestName))
	}
	if !e.Named() {
		errs = append(errs, fmt.Errorf("name %.80q: want 1 to %d letters, digits, '-' or '_', beginning with a letter or digit", e.Name, file.LongestName))
	}
	if _, err := train.ParseJobID(e.Profiles); e.Profiles != "" && err != nil {
		errs = append(errs, fmt.Errorf("profiles: %w", err))
	}
	if !slices.Contains(file.Modes(), e.Mode) {
		errs = append(errs, fmt.Errorf("mode %.80q: want v1, v2 or pipetune", e.Mode))
	}
	for i, f := range e.System {
		if err := f.Check(); err != nil {
			errs = append(errs, err)
		} else if slices.ContainsFunc(e.System[:i], func(g file.Factor) bool { return g.Name == f.Name }) {
			errs = append(errs, fmt.Errorf("system.%s: is given twice", f.Name))
		}
	}
	if all := file.Combinations(e.System); all > file.MostSettings {
		errs = append(errs, fmt.Errorf("system: %g combinations of values: want at most %d", all, file.MostSettings))
	}
	if e.Concurrency < 1 {
		errs = append(errs, fmt.Errorf("concurrency %d: want 1 or more", e.Concurrency))
	}
	if all := e.Search.Trials * e.Search.MaxEpochs; all > MostEpochs || all < 0 {
		errs = append(errs, fmt.Errorf("%d trials of %d epochs: want at most %d epochs in all", e.Search.Trials, e.Search.MaxEpochs, MostEpochs))
	}
	if field, wrong := e.FrozenDevices(); wrong != "" {
		errs = append(errs, fmt.Errorf("job.%s: %s", field, wrong))
	}
	if field, wrong := e.FrozenEpochs(); wrong != "" {
		errs = append(errs, fmt.Errorf("%s: %s", field, wrong))
	}
	if e.Objective.Metric == "" {
		errs = append(errs, errors.New("objective: is missing"))
	}
	if e.Search.MaxEpochs != e.Job.MaxEpochs {
		errs = append(errs, fmt.Errorf("search.max_epochs %d: want that of the job, %d", e.Search.MaxEpochs, e.Job.MaxEpochs))
	}
	if _, err := e.Searcher(); err != nil {
		errs = append(errs, err)
	}
	job, err := json.Marshal(e.Job)
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("job: %w", err))...)
	}
	_, reasons := event.DecodeSubmission(job)
	for _, r := range reasons {
		errs = append(errs, fmt.Errorf("job: %s", r))
	}
	return errors.Join(errs...)
}
