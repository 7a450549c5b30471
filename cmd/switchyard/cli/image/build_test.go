package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/engine"
)

// withEngine gives podman a store of the test, or skips.
func withEngine(t *testing.T, registry string) engine.Engine {
	t.Helper()
	dir, runtime := t.TempDir(), "crun"
	if _, err := exec.LookPath("runc"); err == nil {
		runtime = "runc" // crun does not run where control groups of both versions are mounted
	}
	// Not every root may raise limits.
	for name, text := range map[string]string{
		"storage.conf":    fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", filepath.Join(dir, "images"), filepath.Join(dir, "run")),
		"containers.conf": "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n[engine]\nruntime = \"" + runtime + "\"\n",
		"registries.conf": fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n", registry),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("CONTAINERS_STORAGE_CONF", filepath.Join(dir, "storage.conf"))
	t.Setenv("CONTAINERS_CONF", filepath.Join(dir, "containers.conf"))
	t.Setenv("CONTAINERS_REGISTRIES_CONF", filepath.Join(dir, "registries.conf"))
	e, trouble := engine.Find(t.Context(), engineTime)
	if e == engine.None {
		t.Skip(trouble)
	}
	return e
}

// say runs the engine, and returns what it says.
func say(t *testing.T, e engine.Engine, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), string(e), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", e, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// folder makes a job's folder, whose image is the base of the test and a file.
func folder(t *testing.T, word string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "My Job")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"Containerfile": "ARG BASE=none\nFROM ${BASE}\nCOPY word /job/word\n", "word": word} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func command(args ...string) (code int, out, said string) {
	return clitest.Execute([]console.Command{Command}, "", append([]string{"--nats", "nats://127.0.0.1:1", "build"}, args...)...)
}

func TestAFolderIsBuilt(t *testing.T) {
	registry := newRegistry(t)
	e := withEngine(t, registry.address)
	bottom := t.TempDir()
	program := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bottom, "inside"), "./testdata/inside")
	program.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := program.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(bottom, "Dockerfile"), []byte("FROM scratch\nCOPY inside /inside\nCMD [\"/inside\"]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	build := func(args ...string) Built {
		t.Helper()
		code, out, said := command(append(args, "-o", "json")...)
		if code != exit.OK {
			t.Fatalf("exit code %d: %s", code, said)
		}
		b := clitest.Parse[Built](t, out)
		t.Cleanup(func() { _ = exec.Command(string(e), "rmi", "--force", b.Tag).Run() })
		return b
	}
	base := build(bottom)
	first := build("--build-arg", "BASE="+base.Tag, folder(t, "one"))
	if !strings.HasPrefix(first.Reference, "sha256:") || !strings.HasPrefix(first.Tag, "localhost/switchyard/my-job:"+first.Reference[7:19]) || first.Pushed {
		t.Errorf("%+v", first)
	}
	other := build("--build-arg", "BASE="+base.Tag, folder(t, "two"))
	if other.Reference == first.Reference || other.Tag == first.Tag {
		t.Errorf("another content is %+v, as %+v", other, first)
	}
	// Both are there, each under its digest.
	for reference, want := range map[string]string{first.Reference: "one", other.Reference: "two"} {
		if got := say(t, e, "run", "--rm", "--network", "host", "--pull", "never", reference); !strings.HasPrefix(got, want) {
			t.Errorf("%s prints %q", reference, got)
		}
	}
	pushed := build("--build-arg", "BASE="+base.Tag, "--push", registry.address+"/ann/job", folder(t, "one"))
	name, digest, _ := strings.Cut(pushed.Reference, "@")
	if !pushed.Pushed || name != registry.address+"/ann/job" || !registry.has(digest) {
		t.Errorf("%+v: the registry has no such digest", pushed)
	}
}

func TestWhatCannotBeBuilt(t *testing.T) {
	fails := func(want string, code int, args ...string) {
		t.Helper()
		if got, _, said := command(args...); got != code || !strings.Contains(said, want) {
			t.Errorf("%v: exit code %d: %s", args, got, said)
		}
	}
	dir := t.TempDir()
	fails("no Dockerfile or Containerfile in "+dir, exit.Usage, dir)
	fails("the digest follows from the content", exit.Usage, "--push", "registry.example/ann@sha256:00", dir)
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch\nCOPY missing /\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Run("without an engine", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		fails("no container engine to build with: no docker in PATH; no podman in PATH\n  fix: install docker or podman", exit.Failed, dir)
	})
	e := withEngine(t, "unused.example")
	fails(string(e)+" build: exit status", exit.Failed, dir)
}

// registry keeps what is pushed to it. It is the least of a registry by the specification of OCI.
type registry struct {
	address string

	mu    sync.Mutex
	blobs map[string][]byte
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	r := &registry{blobs: map[string][]byte{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.address = strings.TrimPrefix(server.URL, "http://")
	return r
}

func (r *registry) has(digest string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.blobs[digest] != nil
}

// ServeHTTP implements http.Handler. An upload is kept under its path until its last request names its digest.
func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := path.Base(q.URL.Path)
	body, _ := io.ReadAll(q.Body)
	switch {
	case q.Method == http.MethodPost:
		w.Header().Set("Location", q.URL.Path+fmt.Sprint(len(r.blobs)))
		r.blobs[q.URL.Path+fmt.Sprint(len(r.blobs))] = []byte{}
		w.WriteHeader(http.StatusAccepted)
	case q.Method == http.MethodPatch:
		r.blobs[q.URL.Path] = append(r.blobs[q.URL.Path], body...)
		w.Header().Set("Location", q.URL.Path)
		w.Header().Set("Range", fmt.Sprintf("0-%d", len(r.blobs[q.URL.Path])-1))
		w.WriteHeader(http.StatusAccepted)
	case q.Method == http.MethodPut && q.URL.Query().Has("digest"):
		r.blobs[q.URL.Query().Get("digest")] = append(r.blobs[q.URL.Path], body...)
		w.WriteHeader(http.StatusCreated)
	case q.Method == http.MethodPut:
		sum := sha256.Sum256(body)
		digest := "sha256:" + hex.EncodeToString(sum[:])
		r.blobs[digest] = body
		w.Header().Set("Docker-Content-Digest", digest)
		w.WriteHeader(http.StatusCreated)
	case last == "v2" || r.blobs[last] != nil:
		w.Header().Set("Content-Length", fmt.Sprint(len(r.blobs[last])))
		if q.Method == http.MethodGet {
			_, _ = w.Write(r.blobs[last])
		}
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}
