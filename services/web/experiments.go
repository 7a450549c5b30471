package web

import (
	"cmp"
	"encoding/json"
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
	record, err := s.recordOfExperiment(r)
	if err == nil {
		err = s.may(r, access.SeeSpec, ownerOfExperiment(record))
	}
	if err != nil {
		return answer{}, err
	}
	return answer{body: view.DescribeExperiment(record)}, nil
}

// recordOfExperiment returns the record of the experiment that a path names.
func (s server) recordOfExperiment(r *http.Request) (*contract.ExperimentRecord, error) {
	bucket, err := bus.OpenKV(r.Context(), s.bus, contract.Experiments)
	if err != nil {
		return nil, problemError{problem(http.StatusServiceUnavailable, err.Error(), "")}
	}
	id := r.PathValue("id")
	entry, err := bucket.Get(r.Context(), id)
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return nil, problemError{problem(http.StatusNotFound, "no experiment "+id, "`switchyard tune ps` lists them")}
	case err != nil:
		return nil, problemError{problem(http.StatusServiceUnavailable, err.Error(), "")}
	}
	return &entry.Value, nil
}

func ownerOfExperiment(r *contract.ExperimentRecord) access.Owner {
	return access.Owner{User: r.Experiment.Job.User, Tenant: r.Experiment.Job.Tenant}
}

// ownedExperiment writes into an experiment whose its trials are, unless it says that itself or the owner of the
// installation asks, who has no name. What is no experiment is refused by others.
func ownedExperiment(experiment json.RawMessage, person string) json.RawMessage {
	var e, job map[string]json.RawMessage
	if person == "" || json.Unmarshal(experiment, &e) != nil || json.Unmarshal(e["job"], &job) != nil || job == nil || job["user"] != nil {
		return experiment
	}
	user, _ := json.Marshal(person)
	job["user"] = user
	written, err := json.Marshal(job)
	if err != nil {
		return experiment
	}
	e["job"] = written
	if written, err = json.Marshal(e); err != nil {
		return experiment
	}
	return written
}
