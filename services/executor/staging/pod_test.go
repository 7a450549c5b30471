package staging

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// staged does what the container of a pod does, and returns what it says.
func staged(t *testing.T, root string, o Order) (code int, words string) {
	t.Helper()
	o.Policy.Networks = append(o.Policy.Networks, netip.MustParsePrefix("127.0.0.0/8"))
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	last := filepath.Join(t.TempDir(), "termination-log")
	code = stage(t.Context(), string(text), root, last)
	said, err := os.ReadFile(last)
	if err != nil {
		t.Fatal(err)
	}
	return code, string(said)
}

// seen returns what the job of a reader has of its data.
func seen(t *testing.T, root, reader, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, Link(reader), name))
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func TestPodsShareACopyByLinks(t *testing.T) {
	s, root := serve(t, true), t.TempDir()
	for i, reader := range []string{"one.1", "two.4"} {
		code, words := staged(t, root, Order{Terms: Terms{Limit: roomy}, URL: s.URL + "/train.rec?signature=x", Reader: reader, At: time.Now()})
		var done train.Staging
		if err := json.Unmarshal([]byte(words), &done); code != 0 || err != nil || done.Cached != (i == 1) || !done.Whole() || strings.Contains(words, "signature") {
			t.Errorf("%s: exit status %d: %s", reader, code, words)
		}
		if got := seen(t, root, reader, "train.rec"); got != "first" {
			t.Errorf("%s sees %q", reader, got)
		}
		if to, err := os.Readlink(filepath.Join(root, Link(reader))); err != nil || filepath.IsAbs(to) {
			t.Errorf("the link of %s leads to %s (%v): a pod sees the folder at another path", reader, to, err)
		}
	}
}

// A cache has room for one copy. What others read stays, whether the order knows them or they have begun since.
func TestCopiesThatPodsReadStay(t *testing.T) {
	root, later := t.TempDir(), time.Now().Add(2*clockSkew)
	fetch := func(reader, text string, o Order) int {
		s := serve(t, true)
		s.text.Store(text)
		o.Terms, o.URL, o.Reader = Terms{Limit: 6}, s.URL+"/train.rec", reader
		code, _ := staged(t, root, o)
		return code
	}
	if code := fetch("one.1", "first", Order{At: time.Now()}); code != 0 {
		t.Fatalf("exit status %d", code)
	}
	if code := fetch("two.1", "other", Order{At: later, Live: []string{"one.1"}}); code != NeverCode {
		t.Errorf("beside a reader that the order names: exit status %d", code)
	}
	if code := fetch("two.2", "other", Order{At: time.Now()}); code != NeverCode {
		t.Errorf("beside a reader that may have begun since: exit status %d", code)
	}
	if got := seen(t, root, "one.1", "train.rec"); got != "first" {
		t.Errorf("it sees %q", got)
	}
	if code := fetch("two.3", "other", Order{At: later}); code != 0 {
		t.Errorf("after its end: exit status %d", code)
	}
	if _, err := os.Lstat(filepath.Join(root, Link("one.1"))); err == nil {
		t.Error("the link of a reader that has ended is left")
	}
}

func TestWhatAPodCannotFetch(t *testing.T) {
	root := t.TempDir()
	const closed = `{"reader": "a.1", "limit": 1, "url": "http://127.0.0.1:1/x"`
	for order, want := range map[string]int{
		"": NeverCode, `{"reader": "../x"}`: NeverCode, `{"reader": "a.1", "url": "ftp://x/y"}`: NeverCode,
		// The machine itself; if it may be reached, nobody listens for now.
		closed + `}`: NeverCode, closed + `, "policy": {"networks": ["127.0.0.1/32"]}}`: 1,
	} {
		if code := stage(t.Context(), order, root, filepath.Join(t.TempDir(), "words")); code != want {
			t.Errorf("%s: exit status %d, want %d", order, code, want)
		}
	}
}
