package netrole

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// fourServers is a configuration whose files are kept in a folder.
func fourServers(dir string) Config {
	c := Config{ResponderPort: 7070, KeyFile: filepath.Join(dir, "key"), PathsFile: filepath.Join(dir, "paths")}
	for i := range 4 {
		c.Servers = append(c.Servers, netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)}))
	}
	return c
}

// begin starts a controller that is asked without a network.
func begin(t *testing.T, c Config) *controller {
	t.Helper()
	s, err := newController(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// mustKeep writes the paths.
func (s *controller) mustKeep(t *testing.T) {
	t.Helper()
	if err := s.keep(); err != nil {
		t.Fatal(err)
	}
}

// send sends a request.
func (s *controller) send(t *testing.T, method, path string, body any) *httptest.ResponseRecorder {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, bytes.NewReader(text)))
	return w
}

// ask sends a request that is well and gives the answer's body.
func (s *controller) ask(t *testing.T, method, path string, body any) []byte {
	t.Helper()
	w := s.send(t, method, path, body)
	if w.Code != http.StatusOK {
		t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	return w.Body.Bytes()
}

// links are those that probed flows cross.
func (s *controller) links(t *testing.T) []string {
	t.Helper()
	s.refresh(time.Now())
	var lists map[train.NodeID]train.Pinglist
	if err := json.Unmarshal(s.ask(t, http.MethodGet, "/pinglists", nil), &lists); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, l := range lists {
		for _, f := range l.Probes {
			all = append(all, f.Links...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// list asks for the list of a server as its pinger does, or its responder.
func (s *controller) list(t *testing.T, node train.NodeID, pings bool) (list train.Pinglist) {
	t.Helper()
	path := "/pinglists/" + string(node)
	if pings {
		path += "?pings"
		s.send(t, http.MethodGet, path, nil)
		s.refresh(time.Now())
	}
	if err := json.Unmarshal(s.ask(t, http.MethodGet, path, nil), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// trace has each server tell the paths of its flows, over a router for each pair. None leads further into one of them
// that is dead.
func (s *controller) trace(t *testing.T, dead string) {
	t.Helper()
	for _, server := range s.config.Servers {
		list := s.list(t, nodeOf(server), true)
		found := train.Paths{Node: nodeOf(server)}
		for _, f := range list.Trace {
			p := train.Path{Flow: f, Hops: []string{"192.168." + string(f.From[7:]) + "." + string(f.To[7:])}, Complete: true}
			if string(f.To) == dead {
				p = train.Path{Flow: f, Hops: []string{"", "", ""}}
			}
			found.Paths = append(found.Paths, p)
		}
		s.ask(t, http.MethodPost, "/paths", found)
	}
}

func TestPathsOverADeadLinkAreKept(t *testing.T) {
	c := fourServers(t.TempDir())
	s := begin(t, c)
	s.trace(t, "")
	want := s.links(t)
	if !slices.Contains(want, "to-10-0-0-2") {
		t.Fatalf("%v", want)
	}
	s.trace(t, "10-0-0-2")
	if got := s.links(t); !slices.Equal(got, want) {
		t.Errorf("with a dead link %v are probed, before %v", got, want)
	}
	s.mustKeep(t)
	again := begin(t, c)
	if got := again.links(t); !slices.Equal(got, want) {
		t.Errorf("after a restart %v are probed, before %v", got, want)
	}
}

func TestPathsThatCannotBeReadAreSetAside(t *testing.T) {
	for _, text := range []string{"", "{", "null"} {
		c := fourServers(t.TempDir())
		if err := os.WriteFile(c.PathsFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		begin(t, c).trace(t, "")
		if aside, err := os.ReadFile(c.PathsFile + ".bad"); err != nil || string(aside) != text {
			t.Errorf("%q is kept as %q, %v", text, aside, err)
		}
	}
}

func TestPathsThatCouldNotBeKeptAreKeptLater(t *testing.T) {
	dir := t.TempDir()
	c := fourServers(dir)
	s := begin(t, c)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	s.trace(t, "")
	if err := s.keep(); err == nil {
		t.Error("paths are kept in no folder")
	}
	want := s.links(t)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.mustKeep(t)
	if got := begin(t, c).links(t); !slices.Equal(got, want) {
		t.Errorf("after a restart %v are probed, before %v", got, want)
	}
}

func TestOnlyServersWithAPingerAreCountedOn(t *testing.T) {
	c := fourServers(t.TempDir())
	s := begin(t, c)
	for _, server := range c.Servers {
		s.list(t, nodeOf(server), server == c.Servers[0])
	}
	for _, server := range c.Servers[1:] {
		if list := s.list(t, nodeOf(server), false); len(list.Probes) > 0 || len(list.Key) == 0 {
			t.Errorf("%s, which has no pinger, is asked for %d probes", server, len(list.Probes))
		}
	}
	crossed := map[string]int{}
	for _, f := range s.list(t, "10-0-0-1", true).Probes {
		for _, link := range f.Links {
			crossed[link]++
		}
	}
	if len(crossed) != 4 || crossed["to-10-0-0-2"] < 3 || crossed["to-10-0-0-4"] < 3 {
		t.Errorf("the one pinger's probes cross %v, want the link out of it and three into the others, three times", crossed)
	}
}

func TestAPingerThatIsGoneIsNotCountedOn(t *testing.T) {
	c := fourServers(t.TempDir())
	c.Cycle = time.Minute
	s := begin(t, c)
	s.trace(t, "")
	s.mustKeep(t)
	for name, s := range map[string]*controller{"as it asked": s, "as its paths are kept": begin(t, c)} {
		if list := s.list(t, "10-0-0-2", false); len(list.Probes) == 0 {
			t.Fatalf("%s, a pinger has no probes", name)
		}
		ended := time.Now().Add(3*c.Cycle + traceEvery)
		if s.refresh(ended.Add(-time.Minute)); len(s.list(t, "10-0-0-2", false).Probes) == 0 {
			t.Errorf("%s, a pinger is gone that may find paths", name)
		}
		s.refresh(ended.Add(time.Minute))
		if list := s.list(t, "10-0-0-2", false); len(list.Probes) > 0 || len(list.Key) == 0 {
			t.Errorf("%s, a server whose pinger is gone is asked for %d probes", name, len(list.Probes))
		}
		if list := s.list(t, "10-0-0-1", true); len(list.Probes) == 0 {
			t.Errorf("%s, a pinger that comes back has no probes", name)
		}
	}
}

func TestRequestsThatComeTogetherAreServedTogether(t *testing.T) {
	c := fourServers(t.TempDir())
	s := begin(t, c)
	lists := func() (probes []int) {
		for _, server := range c.Servers {
			var list train.Pinglist
			if w := s.send(t, http.MethodGet, "/pinglists/"+string(nodeOf(server))+"?pings", nil); w.Code == http.StatusServiceUnavailable {
				probes = append(probes, -1)
			} else if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
				t.Fatal(err)
			} else {
				probes = append(probes, min(len(list.Probes), 1))
			}
		}
		return probes
	}
	if got := lists(); !slices.Equal(got, []int{-1, -1, -1, -1}) {
		t.Errorf("before lists are made pingers get %v", got)
	}
	s.refresh(time.Now())
	if got := lists(); !slices.Equal(got, []int{1, 1, 1, 1}) {
		t.Errorf("when lists are made pingers get %v", got)
	}
	s.ask(t, http.MethodPost, "/paths", train.Paths{Node: "10-0-0-1", Paths: []train.Path{{Flow: s.list(t, "10-0-0-1", false).Trace[0], Complete: true}}})
	if _, err := os.Stat(c.PathsFile); !os.IsNotExist(err) {
		t.Errorf("paths are written within a request: %v", err)
	}
	s.mustKeep(t)
	if kept, err := readPaths(c.PathsFile, s.log); err != nil || len(kept["10-0-0-1"].Paths) != 1 {
		t.Errorf("%v, %v are kept", kept, err)
	}
}

// slow is a client that reads nothing until it is let.
type slow struct {
	*httptest.ResponseRecorder
	begun, let chan struct{}
}

func (c slow) Write(data []byte) (int, error) {
	close(c.begun)
	<-c.let
	return c.ResponseRecorder.Write(data)
}

func TestASlowClientKeepsNobodyWaiting(t *testing.T) {
	s := begin(t, fourServers(t.TempDir()))
	s.list(t, "10-0-0-1", true)
	for _, path := range []string{"/pinglists", "/pinglists/10-0-0-1?pings"} {
		client := slow{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
		var running conc.WaitGroup
		running.Go(func() {
			s.handler().ServeHTTP(client, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		})
		<-client.begun
		if !s.mu.TryLock() {
			t.Errorf("%s: a client that reads nothing holds the lists", path)
		} else {
			s.mu.Unlock()
		}
		close(client.let)
		running.Wait()
		if client.Code != http.StatusOK || !json.Valid(client.Body.Bytes()) {
			t.Errorf("%s: %d %s", path, client.Code, client.Body)
		}
	}
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/paths", strings.NewReader(`{"node":"stranger"}`)))
	if w.Code != http.StatusNotFound {
		t.Errorf("paths of a stranger: %d", w.Code)
	}
}

func TestTheKeyOutlivesTheController(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.xml.key")
	first, err := keepKey(path)
	if err != nil || len(first) != keyBytes {
		t.Fatalf("%x, %v", first, err)
	}
	if again, err := keepKey(path); err != nil || !bytes.Equal(first, again) {
		t.Errorf("%x after %x, %v", again, first, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := keepKey(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("half a key: %v", err)
	}
}
