package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/render"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/index"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// Reader answers what a command asks about an installation. The service web does so from its index; where it is away,
// the bus is read.
type Reader interface {
	// Jobs returns a list of jobs on one page, without regard to the query's Limit and After.
	Jobs(ctx context.Context, q view.Query) (view.Page, error)
	// Job returns all that is known about the job that a person means. If there is none, the error has the exit code
	// unknown.
	Job(ctx context.Context, ref string, unknown int) (view.Detail, error)
}

// WithReader runs f with the service web or, where it is away, with a connection to the bus.
func (a *Console) WithReader(cmd *cobra.Command, f func(ctx context.Context, r Reader) error) error {
	if r, found := a.findWeb(cmd.Context()); found {
		return f(cmd.Context(), r)
	}
	return a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error { return f(ctx, OnBus(b, time.Now)) })
}

// findWeb asks the service web of this user's installation which bus it serves.
func (a *Console) findWeb(ctx context.Context) (Reader, bool) {
	place, err := installation.ReadContext(a.ContextPath())
	if err != nil {
		return nil, false
	}
	r := newOnSocket(filepath.Join(place.DataDir, api.SocketName))
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	about, err := ask[api.About](ctx, r, api.Prefix, nil, exit.Unreachable)
	return r, err == nil && about.Bus == a.URL()
}

// onBus reads what it is asked for into an index of its own.
type onBus struct {
	bus *bus.Bus
	now func() time.Time
}

// OnBus returns the reader of a bus.
func OnBus(b *bus.Bus, now func() time.Time) Reader { return onBus{b, now} }

func (r onBus) Jobs(ctx context.Context, q view.Query) (view.Page, error) {
	x := index.New()
	if err := Load(ctx, r.bus, x.Plans, x.Jobs, x.Accounts, x.Tunings, x.Attempts, x.Reports, x.Experiments); err != nil {
		return view.Page{}, err
	}
	q.Limit, q.After = 0, ""
	return view.Jobs(x, q, r.now())
}

func (r onBus) Job(ctx context.Context, ref string, unknown int) (view.Detail, error) {
	job, err := FindJob(ctx, r.bus, ref, unknown)
	if err != nil {
		return view.Detail{}, err
	}
	x, id := index.New(), string(job.ID)
	err = errors.Join(
		Load(ctx, r.bus, x.Plans, x.Jobs, x.Tunings, x.Nodes, x.Met),
		LoadKeys(ctx, r.bus, x.Attempts, id), LoadKeys(ctx, r.bus, x.Reports, id+".*"), LoadKeys(ctx, r.bus, x.Models, id),
		LoadKeys(ctx, r.bus, x.Accounts, contract.AccountKey(job.ID)), LoadKeys(ctx, r.bus, x.Courses, contract.EnergyProgressKey(job.ID)),
	)
	if err != nil {
		return view.Detail{}, err
	}
	d := view.Describe(x, job, r.now())
	err = r.bus.Stored(ctx, event.StreamJobs, d.FactSubjects(), time.Time{}, func(m bus.Message) { d.Fact(m.Parsed.Fact, m.Data) })
	return d, err
}

// Load reads parts of an index. What cannot be decoded is left out, as the service web does.
func Load(ctx context.Context, b *bus.Bus, sources ...index.Source) error {
	for _, s := range sources {
		if s.Bucket() == string(index.Plan) {
			last, err := b.Last(ctx, event.StreamPlans, event.PlanSubject())
			if err != nil && !errors.Is(err, bus.ErrNotFound) {
				return err
			}
			_, _ = s.Put(index.PlanKey, last.Sequence, last.Data)
			continue
		}
		if err := LoadKeys(ctx, b, s, s.Pattern()); err != nil {
			return err
		}
	}
	return nil
}

// LoadKeys reads the keys that match the patterns into a part of an index.
func LoadKeys(ctx context.Context, b *bus.Bus, s index.Source, patterns ...string) error {
	entries, err := listEntries(ctx, b, contract.Bucket[json.RawMessage](s.Bucket()), patterns)
	for _, e := range entries {
		_, _ = s.Put(e.Key, e.Revision, e.Value)
	}
	return err
}

// onSocket asks the service web.
type onSocket struct{ client *http.Client }

// OnSocket returns the reader of the service web that listens on a Unix socket.
func OnSocket(path string) Reader { return newOnSocket(path) }

func newOnSocket(path string) onSocket {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return installation.DialUnix(ctx, path) }
	return onSocket{&http.Client{Transport: &http.Transport{DialContext: dial}}}
}

func (r onSocket) Jobs(ctx context.Context, q view.Query) (view.Page, error) {
	all := view.Page{Jobs: []view.Job{}}
	for q.Limit = api.MaxLimit; ; q.After = all.Next {
		page, err := ask[view.Page](ctx, r, api.Prefix+"/jobs", api.Encode(q), exit.Failed)
		if err != nil {
			return all, err
		}
		page.Jobs = append(all.Jobs, page.Jobs...)
		if all = page; all.Next == "" {
			return all, nil
		}
	}
}

func (r onSocket) Job(ctx context.Context, ref string, unknown int) (view.Detail, error) {
	return ask[view.Detail](ctx, r, api.Prefix+"/jobs/"+url.PathEscape(ref), api.Encode(view.Query{User: CurrentUser()}), unknown)
}

// ask sends one question and reads the answer. What is not found has the exit code unknown.
func ask[T any](ctx context.Context, r onSocket, path string, query url.Values, unknown int) (answer T, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://switchyard"+path+"?"+query.Encode(), nil)
	if err != nil {
		return answer, fmt.Errorf("ask %s: %w", path, err)
	}
	response, err := r.client.Do(request)
	if err != nil {
		return answer, exit.Errorf(exit.Unreachable, "is `switchyard up` running? Try again", "the service web went away: %v", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusBadRequest {
		var p api.Problem
		if err := json.NewDecoder(response.Body).Decode(&p); err != nil {
			return answer, fmt.Errorf("ask %s: %s", path, response.Status)
		}
		code := exit.Failed
		if p.Status == http.StatusNotFound {
			code = unknown
		}
		return answer, exit.Errorf(code, render.EscapeText(p.Fix), "%s", render.EscapeText(p.Detail))
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return answer, fmt.Errorf("read the answer to %s: %w", path, err)
	}
	return answer, nil
}
