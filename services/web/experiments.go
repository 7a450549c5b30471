package web

import (
	"cmp"
	"errors"
	"net/http"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// experiments answers with the list of experiments. The index does not hold their records: they are large, and rarely
// asked for.
func (s server) experiments(route api.Route, r *http.Request) (answer, error) {
	if _, err := route.Decode(r.URL.Query()); err != nil {
		return answer{}, err
	}
	records, err := recordsOf(r.Context(), s, contract.Experiments)
	if err != nil {
		return answer{}, err
	}
	lines := make([]view.ExperimentLine, len(records))
	for i := range records {
		lines[i] = view.NewExperimentLine(&records[i])
	}
	slices.SortFunc(lines, func(x, y view.ExperimentLine) int {
		return cmp.Or(y.SubmittedAt.Compare(x.SubmittedAt), cmp.Compare(x.ID, y.ID))
	})
	return answer{body: lines}, nil
}

// experiment answers with one of them. What its trials try is part of the spec of their jobs.
func (s server) experiment(route api.Route, r *http.Request) (answer, error) {
	if _, err := route.Decode(r.URL.Query()); err != nil {
		return answer{}, err
	}
	bucket, err := bus.OpenKV(r.Context(), s.bus, contract.Experiments)
	if err != nil {
		return answer{}, problemError{problem(http.StatusServiceUnavailable, err.Error(), "")}
	}
	id := r.PathValue("id")
	entry, err := bucket.Get(r.Context(), id)
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return answer{}, problemError{problem(http.StatusNotFound, "no experiment "+id, "`switchyard tune ps` lists them")}
	case err != nil:
		return answer{}, problemError{problem(http.StatusServiceUnavailable, err.Error(), "")}
	}
	job := entry.Value.Experiment.Job
	if err := s.may(r, access.SeeSpec, access.Owner{User: job.User, Tenant: job.Tenant}); err != nil {
		return answer{}, err
	}
	return answer{body: view.DescribeExperiment(&entry.Value)}, nil
}
