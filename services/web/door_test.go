package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/kubetoken"
	"github.com/switchyard-dl/switchyard/libs/packets"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
)

// openBench is a bench whose page is served over TCP.
func openBench(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.config.Listen = "127.0.0.1:0"
	return b
}

// link asks over the socket of the bench's client for a link.
func (b *bench) link() *url.URL {
	b.t.Helper()
	status, link := answerOf[api.Link](b, b.send("POST", "/api/v1/links", ""))
	at, err := url.Parse(link.URL)
	if err != nil || status != http.StatusCreated || at.Port() == "" {
		b.t.Fatalf("a link: %d %+v, %v", status, link, err)
	}
	return at
}

// overTCP returns a client that connects to the page, whatever host a request names.
func overTCP(t *testing.T, at *url.URL) *http.Client {
	t.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", at.Host)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial}, Jar: jar, Timeout: time.Minute}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// login begins a session by a link.
func (b *bench) login(at *url.URL) *http.Response {
	b.t.Helper()
	token := strings.TrimPrefix(at.Fragment, "login=")
	response := b.send("POST", api.SessionPath, `{"token": "`+token+`"}`)
	response.Body.Close()
	return response
}

// enter makes the client of a bench one with a session over TCP, of the user that its client was on the socket.
func (b *bench) enter() {
	b.t.Helper()
	at := b.link()
	b.client = overTCP(b.t, at)
	if response := b.login(at); response.StatusCode != http.StatusNoContent {
		b.t.Fatalf("log in: %s", response.Status)
	}
}

func TestALinkLogsInOnce(t *testing.T) {
	b := openBench(t)
	stop := b.serve()
	b.put(train.Job{ID: "a", State: train.StateQueued})
	at, socket := b.link(), b.client
	b.client = overTCP(t, at)
	response := b.login(at)
	set := response.Header.Get("Set-Cookie")
	if response.StatusCode != http.StatusNoContent || !strings.Contains(set, "HttpOnly") || !strings.Contains(set, "SameSite=Strict") || !strings.Contains(set, "Path=/") {
		t.Errorf("%s, cookie %q", response.Status, set)
	}
	status, about := ask[api.About](b, "GET", "/api/v1")
	if status != http.StatusOK || about.Person.Role != "admin" || about.Person.Name != "" {
		t.Errorf("the owner is %d %+v", status, about.Person)
	}
	inside := b.client
	b.client = overTCP(t, at)
	if again := b.login(at); again.StatusCode != http.StatusUnauthorized {
		t.Errorf("a link works twice: %s", again.Status)
	}
	value := strings.TrimPrefix(strings.Split(set, ";")[0], "switchyard-"+at.Port()+"=")
	kept, err := os.ReadFile(filepath.Join(b.dir, sessionsName))
	info, _ := os.Stat(filepath.Join(b.dir, sessionsName))
	if err != nil || strings.Contains(string(kept), value) || len(value) < 40 || info.Mode().Perm() != 0o600 {
		t.Errorf("the session %q is kept as %s, mode %s, %v", value, kept, info.Mode(), err)
	}

	stop() // and a session outlives the process
	b.client, b.config.Listen = socket, at.Host
	b.serve()
	b.client = inside
	inside.CloseIdleConnections()
	if status, _ := ask[api.About](b, "GET", "/api/v1"); status != http.StatusOK {
		t.Errorf("after a restart: %d", status)
	}
	response = b.send("DELETE", api.SessionPath, "")
	response.Body.Close()
	if status, _ := ask[api.Problem](b, "GET", "/api/v1"); response.StatusCode != http.StatusNoContent || status != http.StatusUnauthorized {
		t.Errorf("logged out: %s, then %d", response.Status, status)
	}
}

func TestWithoutASessionThereIsOnlyThePage(t *testing.T) {
	b := openBench(t)
	b.serve()
	at := b.link()
	b.client = overTCP(t, at)
	for path, want := range map[string]int{
		"/": 401, "/index.html": 401, "/page.js": 200, "/page.css": 200, "/icon.svg": 200, "/api/v1": 401, "/api/v1/jobs": 401, "/api/v1/changes": 401,
		"/api/v1/nodes/n/log?job=a": 401, "/api/": 401, "/../web-sessions.json": 404,
	} {
		response := b.send("GET", path, "")
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != want || want == 401 && !strings.Contains(string(text), "switchyard open") {
			t.Errorf("GET %s: %s %s", path, response.Status, text)
		}
		if policy := response.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'; script-src 'self'") || strings.Contains(policy, "unsafe") {
			t.Errorf("GET %s: policy %q", path, policy)
		}
	}
	for path, want := range map[string]int{"/api/v1/links": 401, "/api/v1/jobs/a/cancel_requested": 401, api.SessionPath: 400} {
		if response := b.send("POST", path, ""); response.StatusCode != want {
			t.Errorf("POST %s: %s", path, response.Status)
		}
	}
	if response := b.login(at); response.StatusCode != http.StatusNoContent {
		t.Fatal(response.Status)
	}
	if status, p := ask[api.Problem](b, "POST", "/api/v1/links"); status != http.StatusForbidden || !strings.Contains(p.Fix, "switchyard open") {
		t.Errorf("a session makes links: %d %+v", status, p)
	}
	response := b.send("GET", "/", "")
	text, _ := io.ReadAll(response.Body)
	response.Body.Close()
	if response.StatusCode != 200 || strings.Contains(string(text), "<script>") || strings.Contains(string(text), "://") {
		t.Errorf("the page: %s %s", response.Status, text)
	}
}

// A page of another site cannot ask in the name of the person who is logged in, nor under a name of its own.
func TestForeignPagesAreRefused(t *testing.T) {
	b := openBench(t)
	b.config.Hosts = []string{"yard.example"}
	b.serve()
	b.put(train.Job{ID: "a", State: train.StateQueued})
	onSocket := b.client
	b.enter()
	for _, door := range []*http.Client{b.client, onSocket} {
		b.client = door
		for _, c := range []struct {
			host, method, path, header, value string
			want                              int
		}{
			{"switchyard", "POST", "/api/v1/jobs/a/cancel_requested", "Origin", "http://evil.example", 403},
			{"switchyard", "POST", "/api/v1/jobs/a/cancel_requested", "Origin", "null", 403},
			{"switchyard", "POST", "/api/v1/jobs/a/cancel_requested", "Sec-Fetch-Site", "cross-site", 403},
			{"switchyard", "POST", "/api/v1/jobs/a/cancel_requested", "Sec-Fetch-Site", "same-site", 403},
			{"switchyard", "POST", "/api/v1/session", "Origin", "http://evil.example", 403},
			{"switchyard", "DELETE", "/api/v1/session", "Sec-Fetch-Site", "cross-site", 403},
			{"switchyard", "GET", "/api/v1/jobs", "Sec-Fetch-Site", "cross-site", 403},
			{"switchyard", "GET", "/api/v1/jobs", "Sec-Fetch-Site", "same-site", 403},
			{"switchyard", "GET", "/api/v1/jobs", "Sec-Fetch-Site", "same-origin", 200},
			{"switchyard", "GET", "/", "Sec-Fetch-Site", "cross-site", 200},
			{"switchyard", "POST", "/api/v1/jobs/a/cancel_requested", "Origin", "http://switchyard", 202},
			{"switchyard", "POST", "/api/v1/jobs/a/cancel_requested", "Sec-Fetch-Site", "same-origin", 202},
			{"evil.example", "GET", "/", "", "", 421},
			{"evil.example:7470", "GET", "/api/v1/jobs", "", "", 421},
			{"localhost.evil.example", "GET", "/api/v1/jobs", "", "", 421},
			{"", "GET", "/api/v1/jobs", "", "", 421},
		} {
			r, err := http.NewRequestWithContext(b.ctx, c.method, "http://switchyard"+c.path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = c.host
			if c.host == "" {
				r.Host = "[]"
			}
			if c.header != "" {
				r.Header.Set(c.header, c.value)
			}
			response, err := b.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != c.want {
				t.Errorf("%+v: %s", c, response.Status)
			}
		}
	}
	b.client = onSocket
	for _, host := range []string{"localhost:1", "127.0.0.1:8080", "[::1]:7470", "YARD.example", "10.1.2.3"} {
		r, err := http.NewRequestWithContext(b.ctx, "GET", "http://switchyard/api/v1", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		response, err := b.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", host, response.Status)
		}
	}
}

func TestATakenPortIsNoReasonToStop(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // nothing is waited for
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	b := newBench(t)
	b.config.Listen = taken.Addr().String()
	b.serve()
	at := b.link()
	if at.Host == taken.Addr().String() {
		t.Errorf("two programs listen on %s", at.Host)
	}
	b.enter()
}

// A browser that lost the stream comes back with the header.
func TestTheStreamGoesOnOverTCP(t *testing.T) {
	b := openBench(t)
	b.serve()
	b.enter()
	_, about := ask[json.RawMessage](b, "GET", "/api/v1/jobs")
	response := b.send("GET", "/api/v1/jobs", "")
	response.Body.Close()
	position := response.Header.Get(api.PositionHeader)
	if position == "" {
		t.Fatalf("no position: %s", about)
	}
	for _, id := range []train.JobID{"first", "second"} {
		b.put(train.Job{ID: id, State: train.StateQueued})
		stream := b.send("GET", "/api/v1/changes", "", api.PositionHeader, position)
		lines := bufio.NewScanner(stream.Body)
		for lines.Scan() && !strings.Contains(lines.Text(), `"id":"`+string(id)+`"`) {
			if at, is := strings.CutPrefix(lines.Text(), "id: "); is {
				position = at
			}
		}
		stream.Body.Close()
	}
}

// Who has logged out hears of nothing that changes afterwards, by a stream that was open before either.
func TestAStreamEndsWithItsSession(t *testing.T) {
	b := openBench(t)
	b.serve()
	b.enter()
	stream := b.listen()
	b.put(train.Job{ID: "before", State: train.StateQueued})
	stream.until("before", train.StateQueued)
	b.send("DELETE", api.SessionPath, "").Body.Close()
	b.put(train.Job{ID: "after", State: train.StateQueued})
	for stream.lines.Scan() {
		if strings.Contains(stream.lines.Text(), "after") {
			t.Fatalf("after the logout the stream says %s", stream.lines.Text())
		}
	}
}

// Who has logged out types nothing more, into a terminal that was open before either.
func TestATerminalEndsWithItsSession(t *testing.T) {
	b := openBench(t)
	attempts, err := bus.OpenKV(b.ctx, b.bus, contract.Attempts)
	if err != nil {
		t.Fatal(err)
	}
	if err := attempts.Put(b.ctx, "shell", train.Attempt{Job: "shell", Number: 1, Node: "n", Phase: train.PhaseRunning}); err != nil {
		t.Fatal(err)
	}
	b.put(train.Job{ID: "shell", State: train.StateRunning})
	ctx, cancel := context.WithCancel(b.ctx)
	var executor conc.WaitGroup
	defer executor.Wait()
	defer cancel()
	ended := make(chan struct{})
	executor.Go(func() {
		err := bus.AnswerPipes(ctx, b.bus, rpc.TerminalSubject("n"), func(context.Context, rpc.TerminalRequest) (func(context.Context, *bus.Pipe), error) {
			return func(ctx context.Context, p *bus.Pipe) {
				defer close(ended)
				for {
					if packet, err := p.Receive(ctx); err != nil || p.Send(ctx, packet) != nil {
						return
					}
				}
			}, nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	b.serve()
	b.enter()
	body, keys := io.Pipe()
	defer keys.Close()
	request, err := http.NewRequestWithContext(b.ctx, http.MethodPost, "http://switchyard/api/v1/jobs/shell/terminal", body)
	if err != nil {
		t.Fatal(err)
	}
	var typist conc.WaitGroup
	defer typist.Wait()
	typist.Go(func() { _ = errors.Join(packets.Write(keys, []byte("{}")), packets.Write(keys, []byte("dhello"))) })
	response, err := b.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if seen, err := packets.Read(response.Body, rpc.TerminalPacketSize); err != nil || string(seen) != "dhello" {
		t.Fatalf("%s: the terminal shows %q, %v", response.Status, seen, err)
	}
	b.send("DELETE", api.SessionPath, "").Body.Close()
	select {
	case <-ended:
	case <-b.ctx.Done():
		t.Error("the terminal goes on after the logout")
	}
}

// givenTokens has the name that belongs to a token; all other tokens are nobody's.
type givenTokens map[string]string

func (g givenTokens) Who(_ context.Context, token string) (string, error) {
	switch name := g[token]; name {
	case "":
		return "", fmt.Errorf("%w: Kubernetes does not know the token", kubetoken.ErrRefused)
	case "away":
		return "", io.ErrUnexpectedEOF
	default:
		return name, nil
	}
}

// Over TCP a token of Kubernetes says who asks, if the operator takes them; a session beside it counts for nothing.
func TestATokenSaysWhoAsks(t *testing.T) {
	d, err := newDoor(filepath.Join(t.TempDir(), "sessions"), nil, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(d.onTCP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := askerOf(r.Context())
		_, _ = fmt.Fprintf(w, "%s %v", who.Name, who.Owner)
	})))
	defer server.Close()
	ask := func(authorization string, status int, want string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+api.Prefix+"/jobs", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", authorization)
		response, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != status || !strings.Contains(string(body), want) {
			t.Errorf("%q: %s %s, %v; want %d %q", authorization, response.Status, body, err, status, want)
		}
	}
	ask("Bearer anns", http.StatusUnauthorized, "nobody is logged in")
	d.tokens = givenTokens{"anns": "ann", "late": "away"}
	ask("Bearer anns", http.StatusOK, "ann false")
	ask("Bearer another", http.StatusUnauthorized, "does not know the token")
	ask("Bearer late", http.StatusServiceUnavailable, "try again")
	ask("Basic anns", http.StatusUnauthorized, "nobody is logged in")
	ask("", http.StatusUnauthorized, "nobody is logged in")
}

// A process beside the service prints a link for its user, at the address by which a browser reaches the page.
func TestALinkIsMadeForAnAddress(t *testing.T) {
	b := openBench(t)
	b.serve()
	for at, want := range map[string]string{"": "http://127.0.0.1:", "https://yard.example": "https://yard.example/#login="} {
		if link, err := Open(b.ctx, b.socket(), at); err != nil || !strings.HasPrefix(link, want) || !strings.Contains(link, "/#login=") {
			t.Errorf("at %q: %q, %v", at, link, err)
		}
	}
	if _, err := Open(b.ctx, b.socket(), "yard.example"); err == nil {
		t.Error("a name is taken for an address")
	}
	closed := newBench(t)
	closed.serve()
	if _, err := Open(closed.ctx, closed.socket(), ""); err == nil || !strings.Contains(err.Error(), "not served over TCP") {
		t.Errorf("without a page: %v", err)
	}
}
