package system

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Two jobs name the same address: the node fetches it once, and both have it as files. An address that fails is tried
// again until it answers, and describe says why the job waits. An address that leads to the machine itself is refused
// unless the operator allows it.
func TestDataIsFetchedOnceForAllJobs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var fetches atomic.Int64
	var well atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late/train.rec" && !well.Load() {
			http.Error(w, "the store is down", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") == `"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		if r.URL.Path == "/train.rec" {
			fetches.Add(1)
		}
		_, _ = fmt.Fprint(w, "records")
	}))
	t.Cleanup(server.Close)
	c.env = []string{"SWITCHYARD_DATA_ALLOW=127.0.0.1/32"}
	c.start("up")
	c.connect()
	c.awaitNode()
	read := []string{"sh", "-c", `echo "$DATA_URL: $(cat "$DATA_DIR/train.rec")"`}
	for _, id := range []train.JobID{"one", "two"} {
		c.submitSpec(id, train.Spec{Command: read, DataURL: server.URL + "/train.rec"})
	}
	c.submitSpec("late", train.Spec{Command: read, DataURL: server.URL + "/late/train.rec"})
	c.submitSpec("inward", train.Spec{Command: read, DataURL: "http://[::1]/train.rec"})
	c.await("the failing fetch is tried again", func(jobs map[train.JobID]train.Job) bool { return jobs["late"].Attempt > 1 })
	if _, out := c.command("describe", "late"); !strings.Contains(out, "503") {
		t.Errorf("describe:\n%s", out)
	}
	well.Store(true)
	for id, j := range c.await("all have ended", allEnded(4)) {
		if want := map[bool]train.State{true: train.StateFailed, false: train.StateSucceeded}[id == "inward"]; j.State != want {
			t.Errorf("%s: %s: %s", id, j.State, j.Message)
		}
		if id == "inward" && (j.Reason != train.NotStaged || !strings.Contains(j.Message, "executor.data_allow") || j.Attempt != 1) {
			t.Errorf("%s after %d attempts: %s %s", id, j.Attempt, j.Reason, j.Message)
		}
	}
	if n := fetches.Load(); n != 2 { // the first look, and the copy
		t.Errorf("%d answers with the file, want 2", n)
	}
	cached := 0
	for _, id := range []string{"one", "two"} {
		if _, log := c.command("logs", id); !strings.Contains(log, server.URL+"/train.rec: records") {
			t.Errorf("%s: %s", id, log)
		}
		_, out := c.command("describe", id, "-o", "json")
		cached += strings.Count(out, `"cached": true`)
	}
	if cached != 1 {
		t.Errorf("%d of two jobs found the copy, want 1", cached)
	}
}
