package deploy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// The server of the bus refuses a stream or a bucket if it cannot reserve its whole size, and nothing starts without
// it.
func TestTheBusHasRoomForAllStreams(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(manifests, "base", "bus.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	gib := func(pattern string) (n int64) {
		found := regexp.MustCompile(pattern).FindSubmatch(data)
		if found == nil {
			t.Fatalf("bus.yaml says nothing like %s", pattern)
		}
		n, _ = strconv.ParseInt(string(found[1]), 10, 64)
		return n << 30
	}
	store, volume := gib(`max_file_store: (\d+)GB\n`), gib(`storage: (\d+)Gi\b`) // to the server GB are GiB
	needed := int64(len(contract.Buckets()))*contract.MaxBucketBytes + contract.MaxUploadsBytes
	for _, s := range event.Streams() {
		needed += s.MaxBytes
	}
	if needed > store || store > volume {
		t.Errorf("streams and buckets may hold %d bytes, the server %d, its volume %d", needed, store, volume)
	}
}

// The API server checks the overlays that this cluster cannot run, for lack of images or nodes.
func TestTheOtherOverlaysAreValid(t *testing.T) {
	s := begin(t)
	for _, overlay := range []string{"development", "replicated"} {
		dir, _ := s.overlay(overlay)
		s.kubectl("apply", "--dry-run=server", "-k", dir)
	}
}

// TestTheManifestsRunJobs submits jobs by events, kills every executor and planner in the middle of the work, and both
// jobs end: one shrinks for the other by its checkpoint. The jobs' processes are not root, and can still save.
func TestTheManifestsRunJobs(t *testing.T) {
	s := apply(t, "lab")
	urgent := 80
	s.submit("wide", func(*train.Spec) {})
	s.until("wide on both GPUs", func() bool { j := s.job("wide"); return len(j.Devices) == 2 && j.EpochsDone > 0 })
	s.submit("urgent", func(spec *train.Spec) { spec.Priority = &urgent })
	s.until("both run", func() bool { return s.job("wide").Rescales > 0 && s.job("urgent").EpochsDone > 0 })
	s.kubectl("-n", "switchyard", "delete", "pod", "-l", "app.kubernetes.io/name in (executor,planner)", "--force",
		"--grace-period=0")
	s.succeeded("wide", "urgent")
	s.fetchesData()
	s.givesNodesTheirKeys()
	s.servesPeople()
	s.servesTrainingJobs()
}

// fetchesData runs a job that has its data at an address, with the executor's image that the manifests name.
func (s *site) fetchesData() {
	s.t.Helper()
	_, machine, err := cluster.Addresses()
	s.must(err)
	listener, err := (&net.ListenConfig{}).Listen(s.ctx, "tcp", net.JoinHostPort(machine, "0"))
	s.must(err)
	var sent atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sent.Add(1)
		_, _ = io.WriteString(w, "records")
	}))
	server.Listener = listener
	server.Start()
	s.t.Cleanup(server.Close)
	s.submit("data", func(spec *train.Spec) { spec.DataURL = server.URL + "/train.rec" })
	s.succeeded("data")
	if sent.Load() == 0 {
		s.t.Error("the job with a data_url ran, and nothing was fetched")
	}
}

// TestReplicasOutliveTheirLeaders runs three servers of the bus and two processes of each service, and kills the
// leaders: the server that leads the stream of jobs, with its stored data, then planner and executor.
func TestReplicasOutliveTheirLeaders(t *testing.T) {
	s := apply(t, "replicated-lab")
	s.submit("steady", func(*train.Spec) {})
	for round := range 2 {
		s.until(fmt.Sprintf("progress in round %d", round), func() bool { return s.job("steady").EpochsDone > 10*round })
		for _, pod := range []string{s.streamLeader(), s.leader("planner"), s.leader("executor")} {
			s.kubectl("-n", "switchyard", "delete", "pod", pod, "--force", "--grace-period=0")
		}
		s.submit(train.JobID(fmt.Sprintf("meanwhile-%d", round)), func(spec *train.Spec) { spec.MaxDevices = 1 })
		// Two of three must live at any time.
		s.kubectl("-n", "switchyard", "rollout", "status", "statefulset/bus", "--timeout=3m")
	}
	s.succeeded("steady", "meanwhile-0", "meanwhile-1")
	if copies := len(s.streamInfo().Cluster.Replicas) + 1; copies != 3 {
		t.Errorf("stream %s is kept %d times, want 3", event.StreamJobs, copies)
	}
}

// leader returns the pod that holds a service's lease.
func (s *site) leader(service string) string {
	s.t.Helper()
	leases, err := bus.OpenKV(s.ctx, s.bus, contract.Leases)
	s.must(err)
	var holder string
	s.until("who leads "+service, func() bool {
		e, err := leases.Get(s.ctx, service)
		holder, _, _ = strings.Cut(e.Value.Holder, ":")
		return err == nil
	})
	return holder
}

// streamLeader returns the pod of the bus server that leads the stream of jobs.
func (s *site) streamLeader() string { return s.streamInfo().Cluster.Leader }

func (s *site) streamInfo() *nats.StreamInfo {
	s.t.Helper()
	key, err := nats.NkeyOptionFromSeed(identity.Keys(s.at.Keys).File(identity.Operator))
	s.must(err)
	connection, err := nats.Connect(s.at.URL, append(s.at.Options, key)...)
	s.must(err)
	defer connection.Close()
	js, err := connection.JetStream()
	s.must(err)
	var info *nats.StreamInfo
	s.until("a leader of the stream of jobs", func() bool {
		info, err = js.StreamInfo(event.StreamJobs)
		return err == nil && info.Cluster != nil && info.Cluster.Leader != ""
	})
	return info
}
