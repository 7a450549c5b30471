package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/services/web/api"
)

// suggest asks the service experiments where a client's search goes next. Everyone who may submit trials may ask.
func (s server) suggest(_ api.Route, r *http.Request) (answer, error) {
	if err := s.may(r, access.Submit, access.Owner{}); err != nil {
		return answer{}, err
	}
	if _, err := s.callerInTime(r); err != nil {
		return answer{}, err
	}
	var asked contract.SuggestionRequest
	body := json.NewDecoder(http.MaxBytesReader(nil, r.Body, event.MaxBodyBytes))
	body.DisallowUnknownFields()
	if err := body.Decode(&asked); err != nil {
		return answer{}, problemError{problem(http.StatusUnprocessableEntity, "the body: "+err.Error(), "docs/openapi.json has its keys")}
	}
	ctx, cancel := context.WithTimeout(r.Context(), waiting)
	defer cancel()
	suggestion, err := bus.Ask[contract.SuggestionRequest, contract.Suggestion](ctx, s.bus, contract.SuggestSubject, asked)
	switch {
	case errors.Is(err, bus.ErrAway), errors.Is(err, context.DeadlineExceeded):
		err = problemError{problem(http.StatusServiceUnavailable, err.Error(), "is the experiments service running?")}
	case err != nil:
		err = problemError{problem(http.StatusUnprocessableEntity, err.Error(), "")}
	}
	return answer{body: suggestion}, err
}
