package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/audit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// onSocket asks the service web.
type onSocket struct {
	client *http.Client
	// about is what answers, once it was asked.
	about api.About
}

// expectTime is how long a large body waits for the service to ask for it.
const expectTime = 5 * time.Second

// OnSocket returns the installation whose service web listens on a Unix socket.
func OnSocket(path string) Yard { return newOnSocket(path) }

func newOnSocket(path string) onSocket {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return installation.DialUnix(ctx, path) }
	return newOnSocketBy(&http.Transport{DialContext: dial, ExpectContinueTimeout: expectTime})
}

// newOnSocketBy returns the installation that a transport reaches. The service redirects nobody, but its router does,
// from a path that is not in its shortest form: the client would ask about something else than its user.
func newOnSocketBy(transport http.RoundTripper) onSocket {
	return onSocket{client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

func (y onSocket) Jobs(ctx context.Context, q view.Query) (view.Page, error) {
	all := view.Page{Jobs: []view.Job{}}
	for q.Limit = api.MaxLimit; ; q.After = all.Next {
		var page view.Page
		if _, err := y.ask(ctx, api.Prefix+"/jobs", api.Encode(q), exit.Failed, &page); err != nil {
			return all, err
		}
		page.Jobs = append(all.Jobs, page.Jobs...)
		if all = page; all.Next == "" {
			return all, nil
		}
	}
}

func (y onSocket) Job(ctx context.Context, ref string, unknown int) (d view.Detail, err error) {
	if !inPath(ref) {
		return d, noJob(ref, unknown)
	}
	_, err = y.ask(ctx, jobPath(ref), asUser(), unknown, &d)
	return d, err
}

func (y onSocket) Find(ctx context.Context, ref string, unknown int) (train.Job, error) {
	if !inPath(ref) {
		return train.Job{}, noJob(ref, unknown)
	}
	var s view.Standing
	_, err := y.ask(ctx, jobPath(ref)+"/standing", asUser(), unknown, &s)
	return s.Job, err
}

func (y onSocket) Standing(ctx context.Context, id train.JobID) (s view.Standing, err error) {
	_, err = y.ask(ctx, jobPath(string(id))+"/standing", nil, exit.Failed, &s)
	return s, err
}

func (y onSocket) Follow(ctx context.Context, ids []train.JobID, f func(train.Job) bool) error {
	query := url.Values{"id": {strings.Join(train.Words(ids), ",")}}
	for ctx.Err() == nil {
		var held view.Held
		position, err := y.ask(ctx, api.Prefix+"/records", query, exit.Failed, &held)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the usual end
		}
		if err != nil {
			return err
		}
		query.Set("since", position)
		for _, j := range held.Jobs {
			if !f(*j) {
				return nil
			}
		}
	}
	return nil
}

// awayPause is the time between two questions to a service that is away.
const awayPause = 200 * time.Millisecond

func (y onSocket) Records(ctx context.Context, ids []train.JobID) ([]*train.Job, error) {
	held := view.Held{Jobs: []*train.Job{}}
	if len(ids) == 0 {
		return held.Jobs, nil
	}
	_, err := y.ask(ctx, api.Prefix+"/records", url.Values{"id": {strings.Join(train.Words(ids), ",")}}, exit.Failed, &held)
	return held.Jobs, err
}

func (y onSocket) Nodes(ctx context.Context) ([]*train.Node, error) {
	return listed[train.Node](ctx, y, "/nodes")
}

func (y onSocket) Cluster(ctx context.Context) ([]*view.Node, error) {
	return listed[view.Node](ctx, y, "/nodes")
}

func (y onSocket) Experiments(ctx context.Context) (lines []view.ExperimentLine, err error) {
	_, err = y.ask(ctx, api.Prefix+"/experiments", nil, exit.Failed, &lines)
	return lines, err
}

func (y onSocket) Experiment(ctx context.Context, id string, unknown int) (r contract.ExperimentRecord, err error) {
	if !inPath(id) {
		return r, noExperiment(id, unknown)
	}
	_, err = y.ask(ctx, api.Prefix+"/experiments/"+url.PathEscape(id)+"/record", nil, unknown, &r)
	return r, err
}

func (y onSocket) Rehearse(ctx context.Context, c rpc.Candidate) (r rpc.Rehearsal, err error) {
	_, err = y.send(ctx, http.MethodPost, jobPath(string(c.ID))+"/rehearsal", bytes.NewReader(c.Spec), nil, exit.Failed, &r)
	return r, err
}

func (y onSocket) Epochs(ctx context.Context, id train.JobID) (all view.Epochs, err error) {
	for after := 0; ; {
		var page view.Epochs
		if _, err := y.ask(ctx, jobPath(string(id))+"/epochs", url.Values{"after": {strconv.Itoa(after)}}, exit.Failed, &page); err != nil {
			return all, err
		}
		all.Epochs = append(all.Epochs, page.Epochs...)
		if after = page.Next; after == 0 {
			return all, nil
		}
	}
}

func (y onSocket) Groups(ctx context.Context) (groups []view.Group, err error) {
	_, err = y.ask(ctx, api.Prefix+"/groups", nil, exit.Failed, &groups)
	return groups, err
}

func (y onSocket) GroundTruth(ctx context.Context) (truth contract.GroundTruth, err error) {
	_, err = y.ask(ctx, api.Prefix+"/profiles", nil, exit.Failed, &truth)
	return truth, err
}

func (y onSocket) Probed(ctx context.Context) (p view.Probed, err error) {
	_, err = y.ask(ctx, api.Prefix+"/network/paths", nil, exit.Failed, &p)
	return p, err
}

func (y onSocket) Ledger(ctx context.Context, from, to time.Time) (view.Ledger, error) {
	all := view.Ledger{Books: map[string]contract.Book{}}
	const most = view.LedgerDays * 24 * time.Hour
	for begin := from; begin.Before(to); begin = begin.Add(most) {
		end := begin.Add(most)
		if to.Before(end) {
			end = to
		}
		var part view.Ledger
		query := url.Values{"from": {begin.Format(time.RFC3339Nano)}, "to": {end.Format(time.RFC3339Nano)}}
		if _, err := y.ask(ctx, api.Prefix+"/energy/ledger", query, exit.Failed, &part); err != nil {
			return all, err
		}
		maps.Copy(all.Books, part.Books)
		all.Jobs, all.Accounts, all.Groups = append(all.Jobs, part.Jobs...), append(all.Accounts, part.Accounts...), part.Groups
	}
	return all, nil
}

func (y onSocket) Audit(ctx context.Context, f audit.Filter) (entries []contract.AuditEntry, err error) {
	query := url.Values{}
	for name, value := range map[string]string{"user": f.User, "job": f.Job} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if !f.From.IsZero() {
		query.Set("from", f.From.Format(time.RFC3339))
	}
	_, err = y.ask(ctx, api.Prefix+"/audit", query, exit.Failed, &entries)
	return entries, err
}

func (y onSocket) Users(ctx context.Context) ([]*access.Person, error) {
	return listed[access.Person](ctx, y, "/users")
}

func (y onSocket) Tenants(ctx context.Context) ([]*access.Tenant, error) {
	return listed[access.Tenant](ctx, y, "/tenants")
}

// listed reads all pages of a list.
func listed[T any](ctx context.Context, y onSocket, list string) (items []*T, err error) {
	query := url.Values{}
	for {
		var page view.Records[T]
		if _, err := y.ask(ctx, api.Prefix+list, query, exit.Failed, &page); err != nil {
			return nil, err
		}
		if items = append(items, page.Items...); page.Next == "" {
			return items, nil
		}
		query.Set("after", page.Next)
	}
}

func (y onSocket) Log(ctx context.Context, node train.NodeID, job train.JobID, offset int64) (chunk rpc.LogChunk, err error) {
	_, err = y.ask(ctx, nodePath(node)+"/log", url.Values{"job": {string(job)}, "offset": {strconv.FormatInt(offset, 10)}}, exit.Failed, &chunk)
	if errors.Is(err, context.DeadlineExceeded) {
		err = away{err}
	}
	return chunk, err
}

func (y onSocket) Files(ctx context.Context, node train.NodeID, r rpc.FileRequest) (answer rpc.FileAnswer, err error) {
	query := url.Values{"job": {string(r.Job)}, "path": {r.Path}, "offset": {strconv.FormatInt(r.Offset, 10)}}
	_, err = y.ask(ctx, nodePath(node)+"/files", query, exit.Failed, &answer)
	return answer, err
}

func (y onSocket) Publish(ctx context.Context, fact event.Fact) (repeat bool, err error) {
	body, err := fact.Encode()
	if err != nil {
		return false, err
	}
	s := fact.Subject
	kind, _ := event.Find(s)
	pattern, _, _ := strings.Cut(strings.ReplaceAll(kind.Key, "<id>", s.ID), "<")
	path := api.Prefix + "/" + api.Collection(s.Entity) + "/" + url.PathEscape(s.ID) + "/" + s.Fact
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	for {
		var accepted api.Accepted
		_, err = y.send(ctx, http.MethodPost, path, bytes.NewReader(body), http.Header{api.KeyHeader: {strings.TrimPrefix(fact.Key, pattern)}}, exit.Failed, &accepted)
		early, is := errors.AsType[tooEarly](err)
		if !is || !tick.Pause(ctx, early.wait) {
			return accepted.Repeat, err
		}
	}
}

func (y onSocket) Upload(ctx context.Context, hash string, archive *os.File) (repeat bool, err error) {
	for {
		if _, err := archive.Seek(0, io.SeekStart); err != nil {
			return false, err
		}
		var stored api.Uploaded
		// The client closes the body, not the file; a server that has the folder does not ask for the body.
		_, err = y.send(ctx, http.MethodPut, api.Prefix+"/uploads/"+hash, io.NopCloser(archive), http.Header{"Expect": {"100-continue"}}, exit.Failed, &stored)
		early, is := errors.AsType[tooEarly](err)
		if !is || !tick.Pause(ctx, early.wait) {
			return stored.Repeat, err
		}
	}
}

// tooEarly is the error of a request that is taken after a while.
type tooEarly struct {
	error
	wait time.Duration
}

// Unwrap returns the refusal.
func (e tooEarly) Unwrap() error { return e.error }

func nodePath(node train.NodeID) string { return api.Prefix + "/nodes/" + url.PathEscape(string(node)) }

// inPath reports whether a name can stand in a path. Routers take these three out of it, so that the path means
// something else: an empty variable of a shell must not name another job.
func inPath(name string) bool { return name != "" && name != "." && name != ".." }

// noJob is the error of a reference that no job can have.
func noJob(ref string, unknown int) error {
	return exit.Errorf(unknown, view.JobsListed, "%v", &view.UnknownJobError{Ref: ref})
}

// noExperiment is the error of an id that no experiment has.
func noExperiment(id string, unknown int) error {
	return exit.Errorf(unknown, "`switchyard tune ps` lists them", "there is no experiment %q", id)
}

func jobPath(ref string) string { return api.Prefix + "/jobs/" + url.PathEscape(ref) }

// asUser is the query of a reference to a job, which means the newest job of this user first.
func asUser() url.Values { return api.Encode(view.Query{User: installation.CurrentUser()}) }

func (y onSocket) ask(ctx context.Context, path string, query url.Values, unknown int, answer any) (position string, err error) {
	return y.send(ctx, http.MethodGet, path+"?"+query.Encode(), http.NoBody, nil, unknown, answer)
}

// send sends a request and reads the answer. What is not found has the exit code unknown.
func (y onSocket) send(ctx context.Context, method, path string, body io.Reader, header http.Header, unknown int, answer any) (position string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+api.SocketHost+path, body)
	if err != nil {
		return "", fmt.Errorf("ask %s: %w", path, err)
	}
	maps.Copy(request.Header, header)
	response, err := y.client.Do(request)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", gone{exit.Errorf(exit.Unreachable, "is `switchyard up` running? Try again", "the service web went away: %v", err)}
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusMultipleChoices {
		return "", refused(path, response, unknown)
	}
	err = json.NewDecoder(response.Body).Decode(answer)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", gone{fmt.Errorf("read the answer to %s: %w", path, err)}
	}
	return response.Header.Get(api.PositionHeader), nil
}

// refused is the error of an answer that is no success.
func refused(path string, response *http.Response, unknown int) error {
	var p api.Problem
	if err := json.NewDecoder(response.Body).Decode(&p); err != nil {
		return fmt.Errorf("ask %s: %s", path, response.Status)
	}
	refusal := func(code int) error {
		return exit.Errorf(code, render.EscapeText(p.Fix), "%s", render.EscapeText(p.Detail))
	}
	switch p.Status {
	case http.StatusNotFound:
		return refusal(unknown)
	case http.StatusUnprocessableEntity:
		return refusal(exit.Usage)
	case http.StatusTooManyRequests:
		return tooEarly{refusal(exit.Failed), time.Duration(p.RetrySeconds) * time.Second}
	case http.StatusServiceUnavailable:
		return away{refusal(exit.Unreachable)}
	}
	return refusal(exit.Failed)
}

// away makes an error a bus.ErrAway.
type away struct{ error }

// Is implements errors.Is.
func (away) Is(target error) bool { return target == bus.ErrAway }

// Unwrap implements errors.Unwrap.
func (a away) Unwrap() error { return a.error }

// errGone reports that the service web does not answer.
var errGone = errors.New("the service web is away")

// gone makes an error an errGone, and a bus.ErrAway.
type gone struct{ error }

// Is implements errors.Is.
func (gone) Is(target error) bool { return target == errGone || target == bus.ErrAway }

// Unwrap implements errors.Unwrap.
func (g gone) Unwrap() error { return g.error }

// startLimit is how long who asks for a link waits for a scheduler that was started just before.
const startLimit = 10 * time.Second

// PageLink asks the service web for a link that logs this user in to the page.
func (a *Console) PageLink(ctx context.Context) (link api.Link, err error) {
	within, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for range tick.Every(within, 100*time.Millisecond) {
		y, err := a.findWeb(within)
		switch {
		case err == nil:
			return y.link(ctx)
		case errors.Is(err, fs.ErrPermission):
			return link, err
		}
	}
	return link, exit.Errorf(exit.Unreachable, "start `switchyard up`, or name the socket of the machine's installation in SWITCHYARD_SOCKET", "no service web answers")
}

// LinkAt is PageLink for the service web that listens on a Unix socket.
func LinkAt(ctx context.Context, socket string) (api.Link, error) {
	return newOnSocket(socket).link(ctx)
}

func (y onSocket) link(ctx context.Context) (link api.Link, err error) {
	defer y.client.CloseIdleConnections()
	_, err = y.send(ctx, http.MethodPost, api.Prefix+"/links", http.NoBody, nil, exit.Failed, &link)
	return link, err
}
