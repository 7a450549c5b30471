package jobs

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Images of the executor, which fetches data, and of a program that prints a file.
const (
	fetcher = "localhost/switchyard/executor:test"
	reader  = "localhost/switchyard/inside:test"
)

// dataServer serves a file to pods, unless its store is down, and counts how often it sends it.
func (y *yard) dataServer() (address string, sent *atomic.Int64, well *atomic.Bool) {
	y.t.Helper()
	sent, well = &atomic.Int64{}, &atomic.Bool{}
	well.Store(true)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		switch {
		case !well.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.Header.Get("If-None-Match") == `"1"`:
			w.WriteHeader(http.StatusNotModified)
		default:
			sent.Add(1)
			_, _ = io.WriteString(w, "records")
		}
	}))
	listener, err := (&net.ListenConfig{}).Listen(y.ctx, "tcp", net.JoinHostPort(y.gateway(), "0"))
	y.must(err)
	server.Listener = listener
	server.Start()
	y.t.Cleanup(server.Close)
	return server.URL + "/train.rec", sent, well
}

// Pods of a namespace share the data of an address in a claim. describe says why a fetch fails.
func TestDataOfPods(t *testing.T) {
	y := newYard(t, "--pod-data-image="+fetcher, "--pod-data-root=/cache=pvc:cache")
	y.must(cluster.Image(y.ctx, fetcher, filepath.Join(y.dir, "executor"), "../../../services/executor/cmd/executor"))
	y.must(cluster.Image(y.ctx, reader, filepath.Join(y.dir, "inside"), "../../runas/inside"))
	dir := filepath.Join(y.dir, "claim")
	y.must(os.Mkdir(dir, 0o777))
	y.must(os.Chmod(dir, 0o777))
	volume := "cache-" + y.namespace
	y.apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": %q}, "spec": {
		"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": "", "hostPath": {"path": %q}, "claimRef": {"namespace": %q, "name": "cache"}}}`,
		volume, dir, y.namespace))
	t.Cleanup(func() {
		_, _ = y.cluster.Kubectl(context.Background(), "delete", "persistentvolume", volume, "--wait=false")
	})
	y.apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "cache"}, "spec": {
		"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": %q}}`, volume))
	address, sent, well := y.dataServer()
	reads := func(s *train.Spec) {
		s.Image, s.Command, s.DataURL, s.Launch = reader, []string{"/inside", "/data/train.rec"}, address, ""
	}
	for i, id := range []train.JobID{"first", "second"} {
		y.submit(id, 1, 1, reads)
		y.plan(on(id, "gpu:0"))
		y.state(id, train.StateSucceeded)
		if got := sent.Load(); got != 2 { // the first look, and the copy
			t.Errorf("after %d jobs the file was sent %d times", i+1, got)
		}
		if out := y.log(id); !strings.Contains(out, "records") {
			t.Errorf("%s has not seen the data:\n%s", id, out)
		}
	}
	y.nothingLeft()
	well.Store(false)
	y.submit("late", 1, 1, func(s *train.Spec) { reads(s); s.DataURL += "?other" })
	y.plan(on("late", "gpu:0"))
	y.awaitReason("late", train.NotStaged, "503")
}
