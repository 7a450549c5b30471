package look

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sourcegraph/conc"
)

// away answers for all paths but those below /away, until the server is back.
type away struct {
	back  chan struct{}
	asked map[string]int
}

func (a *away) ask(path string) string {
	if strings.HasPrefix(path, "/away") {
		a.asked[path]++
		<-a.back
	}
	return "found " + path
}

func TestAFileSystemThatHangsIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &away{make(chan struct{}), map[string]int{}}
		looks := New(server.ask)
		at := func(path string, want error, took time.Duration) {
			t.Helper()
			began := time.Now()
			found, err := looks.At(path)
			if !errors.Is(err, want) || err == nil && found != "found "+path || time.Since(began) != took {
				t.Errorf("%s: %q, %v after %s, want %v after %s", path, found, err, time.Since(began), want, took)
			}
		}
		at("/here", nil, 0)
		var all conc.WaitGroup
		for range 10 {
			all.Go(func() { at("/away/a", ErrHangs, Patience) })
		}
		all.Wait()
		at("/away/a", ErrHangs, 0)
		at("/away/b", ErrHangs, Patience)
		at("/here", nil, 0)
		if server.asked["/away/a"] != 1 {
			t.Errorf("asked %d times", server.asked["/away/a"])
		}
		close(server.back)
		synctest.Wait()
		at("/away/a", nil, 0)
		if looks.hung != 0 || len(looks.open) > 0 {
			t.Errorf("%d hang, open are %v", looks.hung, looks.open)
		}
	})
}

func TestQuestionsThatHangDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &away{make(chan struct{}), map[string]int{}}
		looks := New(server.ask)
		for i := range 2 * mostHung {
			if _, err := looks.At(fmt.Sprint("/away/", i)); !errors.Is(err, ErrHangs) {
				t.Fatal(err)
			}
		}
		if len(server.asked) != mostHung {
			t.Errorf("%d questions hang, want %d", len(server.asked), mostHung)
		}
		close(server.back)
		synctest.Wait()
		if found, err := looks.At("/here"); found != "found /here" {
			t.Error(found, err)
		}
	})
}
