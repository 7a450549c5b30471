package staging

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/train"
)

const roomy = 1 << 30

// cacheOf makes a cache that may reach this machine, where the servers of tests are.
func cacheOf(t *testing.T, limit int64, p Policy) *Cache {
	t.Helper()
	p.Networks = append(p.Networks, netip.MustParsePrefix("127.0.0.0/8"))
	return New(Config{Dir: filepath.Join(t.TempDir(), "staged"), Terms: Terms{Limit: limit, Policy: p}, Reads: func(reader string) bool { return reader != "ended.1" }})
}

// fetched fetches, and returns the content of a file of the copy and the last report.
func fetched(t *testing.T, c *Cache, address, name string) (text string, last train.Staging) {
	t.Helper()
	folder, err := c.Fetch(t.Context(), address, "job.1", func(s train.Staging) { last = s })
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(folder, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(content), last
}

// served is a real server of one file, which it counts.
type served struct {
	*httptest.Server
	text    atomic.Value
	tagged  bool
	fetches atomic.Int64
}

func serve(t *testing.T, tagged bool) *served {
	t.Helper()
	s := &served{tagged: tagged}
	s.text.Store("first")
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := s.text.Load().(string)
		tag := fmt.Sprintf("%q", "tag of "+text)
		if s.tagged {
			w.Header().Set("ETag", tag)
			if r.Header.Get("If-None-Match") == tag {
				w.WriteHeader(http.StatusNotModified)
				return
			}
		} else {
			w.Header().Set("Last-Modified", time.Unix(int64(1000*len(text)), 0).UTC().Format(http.TimeFormat))
		}
		s.fetches.Add(1)
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(s.Close)
	return s
}

// All jobs share one copy of their data. It is fetched again if its source has changed, or a job has changed the copy.
func TestACopyIsSharedUntilItsSourceChanges(t *testing.T) {
	for _, tagged := range []bool{true, false} {
		s := serve(t, tagged)
		c, address := cacheOf(t, roomy, Policy{}), s.URL+"/sets/train.rec?signature=secret"
		var all conc.WaitGroup
		for range 8 {
			all.Go(func() {
				if text, _ := fetched(t, c, address, "train.rec"); text != "first" {
					t.Errorf("%q", text)
				}
			})
		}
		all.Wait()
		_, last := fetched(t, c, address, "train.rec")
		if !last.Cached || last.Total != 5 || strings.Contains(last.URL, "secret") {
			t.Errorf("%+v", last)
		}
		before := s.fetches.Load()
		// The first look, and the copy; without tags each look.
		if most := map[bool]int64{true: 2, false: 10}[tagged]; before > most {
			t.Errorf("%d answers with the file", before)
		}
		again := New(c.config) // the process was restarted
		if _, last = fetched(t, again, address, "train.rec"); !last.Cached {
			t.Errorf("%+v", last)
		}
		s.text.Store("second one")
		if text, last := fetched(t, again, address, "train.rec"); text != "second one" || last.Cached || last.Bytes != 10 || !last.Whole() {
			t.Errorf("%q, %+v", text, last)
		}
		folder, err := again.Fetch(t.Context(), address, "job.1", func(train.Staging) {})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, "train.rec")
		if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("damaged"), 0o600)); err != nil {
			t.Fatal(err)
		}
		if text, last := fetched(t, again, address, "train.rec"); text != "second one" || last.Cached {
			t.Errorf("%q, %+v", text, last)
		}
	}
}

// A folder of HDFS is read by WebHDFS: the namenode lists it and sends to a datanode for each file.
func TestAFolderOfHDFS(t *testing.T) {
	datanode := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("content of " + r.URL.Path))
	}))
	t.Cleanup(datanode.Close)
	listings := map[string]string{
		"/set":     `{"FileStatuses":{"FileStatus":[{"pathSuffix":"a b","type":"FILE","length":19,"modificationTime":5},{"pathSuffix":"sub","type":"DIRECTORY"}]}}`,
		"/set/sub": `{"FileStatuses":{"FileStatus":[{"pathSuffix":"c","type":"FILE","length":21,"modificationTime":6}]}}`,
	}
	namenode := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/webhdfs/v1")
		switch r.URL.Query().Get("op") {
		case "GETFILESTATUS":
			_, _ = w.Write([]byte(`{"FileStatus":{"type":"DIRECTORY","modificationTime":7}}`))
		case "LISTSTATUS":
			_, _ = w.Write([]byte(listings[path]))
		default:
			http.Redirect(w, r, datanode.URL+strings.ReplaceAll(path, " ", "%20"), http.StatusTemporaryRedirect)
		}
	}))
	t.Cleanup(namenode.Close)
	at := netip.MustParseAddrPort(strings.TrimPrefix(namenode.URL, "http://"))
	c := cacheOf(t, roomy, Policy{WebHDFSPort: int(at.Port())})
	for _, address := range []string{"hdfs://127.0.0.1:9000/set", "webhdfs://" + at.String() + "/set"} {
		if text, last := fetched(t, c, address, "a b"); text != "content of /set/a b" || last.Total != 40 {
			t.Errorf("%q, %+v", text, last)
		}
		if text, last := fetched(t, c, address, "sub/c"); text != "content of /set/sub/c" || !last.Cached {
			t.Errorf("%q, %+v", text, last)
		}
	}
}

func TestAnObjectOfS3(t *testing.T) {
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("object " + r.URL.Path))
	}))
	t.Cleanup(store.Close)
	c := cacheOf(t, roomy, Policy{S3: store.URL})
	if text, _ := fetched(t, c, "s3://bucket/sets/a.rec", "a.rec"); text != "object /bucket/sets/a.rec" {
		t.Errorf("%q", text)
	}
}

// A folder of the node, such as an NFS mount, is copied without its links.
func TestAFolderOfTheNode(t *testing.T) {
	root := t.TempDir()
	set := filepath.Join(root, "set")
	err := errors.Join(os.MkdirAll(filepath.Join(set, "sub"), 0o700), os.WriteFile(filepath.Join(set, "sub", "a"), []byte("content"), 0o600),
		os.Symlink("/etc/passwd", filepath.Join(set, "link")), os.Symlink(set, filepath.Join(root, "other")))
	if err != nil {
		t.Fatal(err)
	}
	c := cacheOf(t, roomy, Policy{})
	folder, err := c.Fetch(t.Context(), "file://"+set, "job.1", func(train.Staging) {})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "sub", "a"))
	if _, linked := os.Lstat(filepath.Join(folder, "link")); err != nil || string(text) != "content" || linked == nil {
		t.Errorf("%q, %v; the link: %v", text, err, linked)
	}
	if _, err := c.Fetch(t.Context(), "file://"+filepath.Join(root, "other"), "job.1", func(train.Staging) {}); !errors.Is(err, ErrNever) {
		t.Errorf("by a link: %v", err)
	}
}

// A folder that is replaced by a link while it is copied leads to no file of others.
func TestAFolderIsReplacedWhileItIsCopied(t *testing.T) {
	root := t.TempDir()
	set, theirs := filepath.Join(root, "set"), filepath.Join(root, "theirs")
	err := errors.Join(os.MkdirAll(filepath.Join(set, "sub"), 0o700), os.Mkdir(theirs, 0o700), os.WriteFile(filepath.Join(set, "sub", "key"), nil, 0o600), os.WriteFile(filepath.Join(theirs, "key"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	f := folder{set}
	listed, err := f.list(t.Context(), "")
	if err != nil || len(listed.items) != 1 {
		t.Fatalf("%+v, %v", listed, err)
	}
	if err := errors.Join(os.Rename(filepath.Join(set, "sub"), filepath.Join(set, "moved")), os.Symlink(theirs, filepath.Join(set, "sub"))); err != nil {
		t.Fatal(err)
	}
	if file, err := f.open(t.Context(), listed.items[0]); !errors.Is(err, ErrNever) {
		t.Errorf("opened %v, %v", file, err)
	}
}

// Errors that another try cannot mend differ from those that it can.
func TestWhatCannotBeStaged(t *testing.T) {
	s := serve(t, true)
	inward := httptest.NewServer(http.RedirectHandler(s.URL, http.StatusFound))
	t.Cleanup(inward.Close)
	missing := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(missing.Close)
	small, open := cacheOf(t, 3, Policy{}), cacheOf(t, roomy, Policy{})
	shut := New(Config{Dir: t.TempDir(), Terms: Terms{Limit: roomy}})
	for name, c := range map[string]struct {
		cache   *Cache
		address string
		never   bool
		want    string
	}{
		"this machine":     {shut, s.URL, true, "executor.data_allow"},
		"a redirect to it": {shut, inward.URL, true, "executor.data_allow"},
		"metadata":         {shut, "http://169.254.169.254/latest", true, "metadata"},
		"too large":        {small, s.URL, true, "executor.data_limit"},
		"a password":       {open, "http://me:secret@example.org/a", true, "without a password"},
		"another scheme":   {open, "ftp://example.org/a", true, "want an address"},
		"not there":        {open, missing.URL, false, "404"},
		"no file":          {open, "file:///nowhere/at/all", false, "no such file"},
	} {
		_, err := c.cache.Fetch(t.Context(), c.address, "job.1", func(train.Staging) {})
		if err == nil || errors.Is(err, ErrNever) != c.never || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if left, _ := filepath.Glob(filepath.Join(c.cache.config.Dir, "*[^s]")); err != nil && len(left) > 0 {
			t.Errorf("%s left %q beside its locks", name, left)
		}
	}
}

func TestAddressesThatMayBeReached(t *testing.T) {
	p := Policy{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	for address, want := range map[string]bool{
		"127.0.0.1:80": true, "127.0.0.2:80": false, "[::1]:80": false, "10.1.2.3:9870": true, "93.184.216.34:443": true, "0.0.0.0:80": false,
		"169.254.169.254:80": false, "[fe80::1]:80": false, "100.100.100.200:80": false, "[fd00:ec2::254]:80": false, "[64:ff9b::a9fe:a9fe]:80": false, "[::ffff:169.254.169.254]:80": false,
	} {
		if err := p.reaches(address); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// A full cache gives up the copies that no job reads, those that were not used for the longest time first.
func TestRoomIsMade(t *testing.T) {
	root := t.TempDir()
	c := cacheOf(t, 10, Policy{})
	fetch := func(name, reader string) error {
		path := filepath.Join(root, name)
		if err := os.WriteFile(path, []byte("4 b."), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		_, err := c.Fetch(t.Context(), "file://"+path, reader, func(train.Staging) {})
		return err
	}
	there := func(name string) bool {
		place, _ := c.newest("file://" + filepath.Join(root, name))
		return place != ""
	}
	for i, step := range []struct {
		name, reader string
		refused      bool
		left         string
	}{
		{"a", "ended.1", false, "a"},
		{"b", "ended.1", false, "ab"},
		{"a", "ended.1", false, "ab"}, // used again
		{"c", "job.1", false, "ac"},
		{"d", "job.2", false, "cd"},
		{"e", "job.3", true, "cd"}, // jobs read all
	} {
		err := fetch(step.name, step.reader)
		if refused := errors.Is(err, ErrNever); refused != step.refused || err != nil && !refused {
			t.Errorf("%d: error %v", i, err)
		}
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			if there(name) != strings.Contains(step.left, name) {
				t.Errorf("%d: %s is there: %v, want %s", i, name, there(name), step.left)
			}
		}
	}
}

// A server may go silent with its connection open: its machine is lost, or a storage behind it hangs. The fetch ends
// with an error that may be tried again, and so does that of the next job, which waited for the first one.
func TestAServerThatGoesSilentEndsTheFetch(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte(`{"FileStatus":`))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	c := cacheOf(t, roomy, Policy{})
	c.web.silence = 20 * time.Millisecond
	for name, address := range map[string]string{
		"a file": s.URL + "/train.rec", "a listing": strings.Replace(s.URL, "http:", "webhdfs:", 1) + "/set",
	} {
		var all conc.WaitGroup
		for _, reader := range []string{"job.1", "job.2"} {
			all.Go(func() {
				_, err := c.Fetch(t.Context(), address, reader, func(train.Staging) {})
				if err == nil || errors.Is(err, ErrNever) || !strings.Contains(err.Error(), "sent nothing for 20ms") {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		all.Wait()
	}
}
