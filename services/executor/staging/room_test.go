package staging

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// storage serves files of eight bytes by WebHDFS. It sends the last byte of each once all have ended or are as far.
type storage struct {
	listed int
	near   sync.WaitGroup
	done   map[string]func()
}

func newStorage(listed int, names ...string) *storage {
	s := &storage{listed: listed, done: map[string]func(){}}
	for _, name := range names {
		s.near.Add(1)
		s.done[name] = sync.OnceFunc(s.near.Done)
	}
	return s
}

func (s *storage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("op") != "OPEN" {
		_, _ = fmt.Fprintf(w, `{"FileStatus":{"type":"FILE","length":%d}}`, s.listed)
		return
	}
	name := path.Base(r.URL.Path)
	_, _ = w.Write([]byte(name + "-----"))
	_ = http.NewResponseController(w).Flush()
	s.done[name]()
	s.near.Wait()
	_, _ = w.Write([]byte("."))
}

func TestFetchesSideBySideStayBelowTheLimit(t *testing.T) {
	for size, listed := range map[string]int{"of a known size": 8, "of an unknown size": 0} {
		names := []string{"aa", "bb", "cc", "dd"}
		s := newStorage(listed, names...)
		server := httptest.NewServer(s)
		t.Cleanup(server.Close)
		c := cacheOf(t, 10, Policy{})
		address := strings.Replace(server.URL, "http:", "webhdfs:", 1)
		var fetched atomic.Int64
		var all conc.WaitGroup
		for _, name := range names {
			all.Go(func() {
				_, err := c.Fetch(t.Context(), address+"/"+name, "job."+name, func(train.Staging) {})
				s.done[name]()
				if err == nil {
					fetched.Add(1)
				} else if !errors.Is(err, ErrNever) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if fetched.Load() != 1 {
			t.Errorf("%d copies of 8 bytes, %s, are in a cache of 10 bytes", fetched.Load(), size)
		}
	}
}

func TestADeadProcessReservesNothing(t *testing.T) {
	served := serve(t, true)
	c := cacheOf(t, 8, Policy{})
	left := c.nameOfURL("http://example.org/gone")
	err := errors.Join(os.MkdirAll(filepath.Join(left+partSuffix, folderName), 0o700), os.WriteFile(left+reservedSuffix, []byte("5"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := fetched(t, c, served.URL, "data"); text != "first" {
		t.Errorf("%q", text)
	}
	if names, _ := filepath.Glob(left + "*"); len(names) > 0 {
		t.Errorf("%q stay", names)
	}
}
