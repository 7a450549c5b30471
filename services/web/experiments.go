package web

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// experiments answers with the list of experiments. The index does not hold their records: they are large, and rarely
// asked for.
func (s server) experiments(route api.Route, r *http.Request) (answer, error) {
	records, err := recordsOf(r.Context(), s, contract.Experiments)
	if err != nil {
		return answer{}, err
	}
	return answer{body: view.Experiments(records)}, nil
}

// groups answers with the groups of recurring jobs.
func (s server) groups(route api.Route, r *http.Request) (answer, error) {
	records, err := recordsByKey(r.Context(), s, contract.Groups)
	return answer{body: view.Groups(records)}, err
}

// truth answers with what the caller may see of what is known about workloads.
func (s server) truth(route api.Route, r *http.Request) (answer, error) {
	person, err := s.caller(r)
	if err != nil {
		return answer{}, err
	}
	records, err := recordsByKey(r.Context(), s, contract.Profiles, contract.ProfilesKey)
	truth := records[contract.ProfilesKey]
	if access.May(person, access.SeeSpec, access.Owner{}) != nil {
		truth = truth.Public()
	}
	truth.Model.Features = append([]contract.Feature{}, truth.Model.Features...) // a list without items is no null
	truth.Model.Clusters = append([]contract.KindCluster{}, truth.Model.Clusters...)
	return answer{body: truth}, err
}

// experiment answers with what people see of one of them.
func (s server) experiment(route api.Route, r *http.Request) (answer, error) {
	record, err := s.seenExperiment(r)
	if err != nil {
		return answer{}, err
	}
	return answer{body: view.DescribeExperiment(record)}, nil
}

// experimentRecord answers with the whole record of one of them, or with why it was refused.
func (s server) experimentRecord(route api.Route, r *http.Request) (answer, error) {
	record, err := s.seenExperiment(r)
	if p, is := errors.AsType[problemError](err); is && p.Status == http.StatusNotFound {
		err = cmp.Or(s.refusedExperiment(r), err)
	}
	return answer{body: record}, err
}

// seenExperiment returns the record of an experiment that the caller may see: what its trials try is part of the spec
// of their jobs.
func (s server) seenExperiment(r *http.Request) (*contract.ExperimentRecord, error) {
	record, err := s.recordOfExperiment(r)
	if err == nil {
		err = s.may(r, access.SeeExperiment, ownerOfExperiment(record))
	}
	return record, err
}

// refusedExperiment returns why an experiment without a record was refused, as a problem; nil if it was not, or if the
// caller may not see it.
func (s server) refusedExperiment(r *http.Request) error {
	id := r.PathValue("id")
	var submitted event.ExperimentSubmitted
	var refused event.Rejected
	var of struct {
		Job access.Owner `json:"job"`
	}
	seen := s.lastOfExperiment(r, event.FactSubmitted, &submitted) == nil && s.lastOfExperiment(r, event.FactRejected, &refused) == nil &&
		json.Unmarshal(submitted.Experiment, &of) == nil && s.may(r, access.SeeExperiment, of.Job) == nil
	if !seen {
		return nil
	}
	return problemError{problem(http.StatusUnprocessableEntity, "experiment "+id+" rejected:\n  "+refused.Message, "")}
}

func (s server) lastOfExperiment(r *http.Request, fact string, body any) error {
	m, err := s.bus.Last(r.Context(), event.StreamTune, event.TuneSubject(r.PathValue("id"), fact))
	if err != nil {
		return err
	}
	return json.Unmarshal(m.Data, body)
}

// recordOfExperiment returns the record of the experiment that a path names.
func (s server) recordOfExperiment(r *http.Request) (*contract.ExperimentRecord, error) {
	bucket, err := bus.OpenKV(r.Context(), s.bus, contract.Experiments)
	if err != nil {
		return nil, unavailable(err)
	}
	id := r.PathValue("id")
	entry, err := bucket.Get(r.Context(), id)
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return nil, problemError{problem(http.StatusNotFound, "no experiment "+id, "`switchyard tune ps` lists them")}
	case err != nil:
		return nil, unavailable(err)
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
