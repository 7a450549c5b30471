package web

import (
	"context"
	"errors"
	"net/http"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/index"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// network answers with what probes show. The index does not hold their records: they are many, and rarely asked for.
func (s server) network(route api.Route, r *http.Request) (answer, error) {
	if _, err := route.Decode(r.URL.Query()); err != nil {
		return answer{}, err
	}
	lists, err := recordsOf(r.Context(), s, contract.Probes)
	if err != nil {
		return answer{}, err
	}
	links, err := recordsOf(r.Context(), s, contract.Links)
	if err != nil {
		return answer{}, err
	}
	judged, err := s.judged(r.Context())
	if err != nil {
		return answer{}, err
	}
	status := view.NewNetStatus(lists, links, judged, false)
	var shown view.Network
	position := s.known.read(func(x *index.Index) { shown = view.NewNetwork(status, lists, links, x.Plan()) })
	return answer{position: position, body: shown}, nil
}

// judged returns the newest verdict about the links, or nil.
func (s server) judged(ctx context.Context) (*event.LinksJudged, error) {
	last, err := s.bus.Last(ctx, event.StreamSamples, event.JudgedSubject(0))
	if errors.Is(err, bus.ErrNotFound) {
		return nil, nil //nolint:nilnil // nothing has been judged
	}
	if err != nil {
		return nil, problemError{problem(http.StatusServiceUnavailable, err.Error(), "")}
	}
	judged, err := event.Decode[event.LinksJudged](last.Data)
	if err != nil {
		return nil, problemError{problem(http.StatusBadGateway, err.Error(), "")}
	}
	return &judged, nil
}

// recordsOf reads records of a bucket that the index does not hold: those whose keys match a pattern, or all.
func recordsOf[T any](ctx context.Context, s server, bucket contract.Bucket[T], patterns ...string) ([]T, error) {
	opened, err := bus.OpenKV(ctx, s.bus, bucket)
	if err != nil {
		return nil, problemError{problem(http.StatusServiceUnavailable, err.Error(), "")}
	}
	entries, err := opened.List(ctx, patterns...)
	if err != nil {
		return nil, problemError{problem(http.StatusServiceUnavailable, err.Error(), "")}
	}
	records := make([]T, len(entries))
	for i := range entries {
		records[i] = entries[i].Value
	}
	return records, nil
}
