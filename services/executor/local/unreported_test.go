package local

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// The agent answers the first report only when the call that hands it over has returned: an executor that waits for all
// answers can do nothing else for minutes.
func TestNobodyWaitsWhileTheAgentTakesReports(t *testing.T) {
	b := newBench(t)
	t.Cleanup(b.Close)
	returned := make(chan struct{})
	var mu sync.Mutex
	var got, want []string
	agent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-returned:
		case <-r.Context().Done(): // too late: the report comes again
		}
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, string(body))
	}))
	t.Cleanup(agent.Close)
	a := train.Attempt{Job: "j", Number: 1}
	dir := filepath.Join(b.Layout.Attempt("j", 1), attempt.Unreported)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		want = append(want, fmt.Sprintf(`{"epochs_done":%d}`, i+1))
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%06d", i)), []byte(`{"path":"/v1/jobs/c/epochs","body":`+want[i]+`}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	left, err := b.HandOver(t.Context(), a, strings.TrimPrefix(agent.URL, "http://"))
	if err != nil || left == nil || left.Reports != 100 || left.EpochsDone != 100 {
		t.Fatalf("%+v is left, %v", left, err)
	}
	close(returned)
	b.until("the agent has taken all", func() bool {
		left, err := b.HandOver(t.Context(), a, strings.TrimPrefix(agent.URL, "http://"))
		return err == nil && left == nil
	})
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the agent has taken (-want +got):\n%s", diff)
	}
}
