package web

import (
	"context"
	"errors"
	"net/http"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/index"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// network answers with what probes show. The index does not hold their records: they are many, and rarely asked for.
func (s server) network(route api.Route, r *http.Request) (answer, error) {
	lists, links, judged, err := s.probed(r.Context())
	if err != nil {
		return answer{}, err
	}
	var shown view.Network
	position := s.known.read(func(x *index.Index) { shown = view.NewNetwork(lists, links, judged, x.Plan()) })
	return answer{position: position, body: shown}, nil
}

// networkPaths answers with all that is probed.
func (s server) networkPaths(route api.Route, r *http.Request) (answer, error) {
	lists, links, judged, err := s.probed(r.Context())
	return answer{body: view.NewProbed(lists, links, judged)}, err
}

// probed reads the records of probes, and the newest verdict about the links, nil if there is none.
func (s server) probed(ctx context.Context) (lists []train.Pinglist, links []train.Link, judged *event.LinksJudged, err error) {
	if lists, err = recordsOf(ctx, s, contract.Probes); err != nil {
		return nil, nil, nil, err
	}
	if links, err = recordsOf(ctx, s, contract.Links); err != nil {
		return nil, nil, nil, err
	}
	judged, err = s.judged(ctx)
	return lists, links, judged, err
}

// judged returns the newest verdict about the links, or nil.
func (s server) judged(ctx context.Context) (*event.LinksJudged, error) {
	last, err := s.bus.Last(ctx, event.StreamSamples, event.JudgedSubject(0))
	if errors.Is(err, bus.ErrNotFound) {
		return nil, nil //nolint:nilnil // nothing has been judged
	}
	if err != nil {
		return nil, unavailable(err)
	}
	judged, err := event.Decode[event.LinksJudged](last.Data)
	if err != nil {
		return nil, problemError{problem(http.StatusBadGateway, err.Error(), "")}
	}
	return &judged, nil
}

// recordsOf reads records of a bucket that the index does not hold: those whose keys match a pattern, or all.
func recordsOf[T any](ctx context.Context, s server, bucket contract.Bucket[T], patterns ...string) ([]T, error) {
	entries, err := entriesOf(ctx, s, bucket, patterns)
	return bus.Values(entries), err
}

// recordsByKey is recordsOf with their keys.
func recordsByKey[T any](ctx context.Context, s server, bucket contract.Bucket[T], patterns ...string) (map[string]T, error) {
	entries, err := entriesOf(ctx, s, bucket, patterns)
	return bus.ByKey(entries), err
}

func entriesOf[T any](ctx context.Context, s server, bucket contract.Bucket[T], patterns []string) ([]bus.Entry[T], error) {
	opened, err := bus.OpenKV(ctx, s.bus, bucket)
	if err != nil {
		return nil, unavailable(err)
	}
	entries, err := opened.List(ctx, patterns...)
	return entries, unavailable(err)
}

// unavailable makes a problem of an error of the bus.
func unavailable(err error) error {
	if err == nil {
		return nil
	}
	return problemError{problem(http.StatusServiceUnavailable, err.Error(), "")}
}
