package runas

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// data comes with the rights of who submitted the job, once for all of a person's jobs, and is nobody else's.
func data(l *lab) {
	private := filepath.Join(l.ann.home, "private.rec")
	l.must(errors.Join(os.WriteFile(private, []byte("hers alone"), 0o600), os.Chown(private, l.ann.uid, l.ann.gid)))
	var asked, sent atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") == `"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		sent.Add(1)
		_, _ = io.WriteString(w, "signed for her")
	}))
	l.t.Cleanup(server.Close)
	signed := server.URL + "/train.rec?signature=hers"
	read := []string{"sh", "-c", `cat "$DATA_DIR"/*; ls -ld "$DATA_DIR"`}
	for id, address := range map[string]string{"data-signed": signed, "data-again": signed, "data-private": "file://" + private} {
		l.submit(l.ann, id, []string{"--data-url", address}, read...)
	}
	for id, want := range map[string]string{"data-signed": "signed for her", "data-again": "signed for her", "data-private": "hers alone"} {
		job, out := l.ended(l.ann, id)
		if job.State != train.StateSucceeded {
			l.t.Fatalf("%s: %s\n%s", job.State, job.Message, out)
		}
		contains(l.t, id, out, want, l.ann.name)
	}
	if sent.Load() != 2 || asked.Load() < 3 { // the first look, and the copy; the second job is answered without the file
		l.t.Errorf("the file was sent %d times to %d questions of two jobs", sent.Load(), asked.Load())
	}
	contains(l.t, "describe", l.run(l.ann, "switchyard", "describe", "data-signed", "-o", "json"), `"staging"`)
	// Bob's jobs have her rights neither to the file nor to the copies, wherever these are.
	l.submit(l.bob, "data-steals", []string{"--data-url", "file://" + private, "--max-restarts", "0"}, read...)
	l.submit(l.bob, "data-looks", nil, "sh", "-c", "ls -R "+l.path("jobs/data/"+strconv.Itoa(l.ann.uid))+"; cat "+l.path("jobs/data/"+strconv.Itoa(l.ann.uid))+"/*/data/*")
	if job, out := l.ended(l.bob, "data-looks"); job.State != train.StateFailed || strings.Contains(out, "hers") {
		l.t.Errorf("bob among her copies: %s\n%s", job.State, out)
	}
	l.until("bob's job without her data", func() bool {
		return slices.ContainsFunc(l.job("data-steals").History, func(c train.Change) bool {
			return c.Reason == train.NotStaged && strings.Contains(c.Message, "permission denied")
		})
	})
	l.run(l.bob, "switchyard", "cancel", "data-steals")
	// Nor does the service's user, whom the launcher serves.
	if out, err := l.command(l.svc, "ls", l.path("jobs/data/"+strconv.Itoa(l.ann.uid))).CombinedOutput(); err == nil {
		l.t.Errorf("the service sees her copies: %s", out)
	}
}
