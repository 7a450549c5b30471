package jobs

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// entry is a line that a trainer writes apart from everything else.
type entry struct {
	Event   string  `json:"event"`
	Attempt int     `json:"attempt"`
	Rank    int     `json:"rank"`
	PID     int     `json:"pid"`
	Epoch   int     `json:"epoch"`
	At      float64 `json:"unix_seconds"`
}

// ledger reads what the processes of a job wrote, and checks that no rank of an attempt began twice and that no attempt began before the one before it had
// ended in every rank that says so.
func (y *yard) ledger(id train.JobID) []entry {
	y.t.Helper()
	data, err := os.ReadFile(filepath.Join(y.snapshots(), string(id), "ledger"))
	y.must(err)
	var entries []entry
	starts := map[string]int{}
	last := map[int]float64{}
	for line := range strings.Lines(string(data)) {
		var e entry
		y.must(json.Unmarshal([]byte(line), &e))
		entries = append(entries, e)
		if e.Event == "start" {
			rank := fmt.Sprintf("%d/%d", e.Attempt, e.Rank)
			if starts[rank]++; starts[rank] > 1 {
				y.t.Errorf("%s: attempt/rank %s began twice", id, rank)
			}
			for n, at := range last {
				if n < e.Attempt && at > e.At {
					y.t.Errorf("%s: attempt %d began while attempt %d was there", id, e.Attempt, n)
				}
			}
		}
		last[e.Attempt] = max(last[e.Attempt], e.At)
	}
	return entries
}

// began gives the epoch at which the first rank of an attempt began.
func began(entries []entry, attempt int) int {
	i := slices.IndexFunc(entries, func(e entry) bool { return e.Event == "start" && e.Attempt == attempt && e.Rank == 0 })
	if i < 0 {
		return -1
	}
	return entries[i].Epoch
}

func epochs(n int) func(train.Job) bool {
	return func(j train.Job) bool { return j.EpochsDone >= n }
}

// A job runs on one device, then on two, leaves them, and goes on from its checkpoint each time.
func TestLife(t *testing.T) {
	y := newYard(t)
	y.submit("life", 40, 4, func(s *train.Spec) { s.Ports = []train.PortMapping{{NodePort: 30123, ContainerPort: 8000}} })
	y.plan(on("life", "gpu:0"))
	y.running("life", 1)
	if got := y.kubectl("get", "service", "p-life-1", "-n", y.namespace, "-o", "jsonpath={.spec.ports[0].nodePort} {.spec.selector}"); !strings.HasPrefix(got, "30123 ") {
		t.Errorf("Service %s, want port 30123 of the node", got)
	}
	y.job("life", "two epochs", epochs(2))
	y.plan(on("life", "gpu:0", "gpu:1"))
	y.running("life", 2)
	if got := y.kubectl("get", "pods", "-n", y.namespace, "-l", "switchyard.dev/attempt=2", "-o", "name"); strings.Count(got, "pod/") != 2 {
		t.Errorf("pods of the gang: %s, want two", got)
	}
	done := y.job("life", "epochs of the gang", func(j train.Job) bool { return j.Attempt == 2 && j.EpochsDone > 10 }).EpochsDone
	y.plan()
	if preempted := y.state("life", train.StatePreempted); preempted.EpochsDone < done || preempted.EpochsDone >= 40 {
		t.Errorf("preempted after %d epochs, asked to leave after %d", preempted.EpochsDone, done)
	}
	y.plan(on("life", "gpu:1"))
	y.state("life", train.StateSucceeded)
	y.nothingLeft()
	entries := y.ledger("life")
	for attempt, least := range map[int]int{1: 0, 2: 2, 3: done} {
		if got := began(entries, attempt); got < least {
			t.Errorf("attempt %d began after epoch %d, want %d or later", attempt, got, least)
		}
	}
	y.until("the whole log, though the pods are gone", func() bool {
		log := y.log("life")
		return strings.Contains(log, "attempt 3 of life") && strings.Contains(log, "epoch 40/40")
	})
}

// What goes wrong with pods has an outcome and a reason that a person reads.
func TestTroubles(t *testing.T) {
	y := newYard(t, "--pod-memory-limit=300Mi", "--pod-schedule-limit=3s")
	none := 0
	y.submit("imageless", 3, 1, func(s *train.Spec) { s.Image = "localhost/nobody/has:this" })
	y.submit("programless", 3, 1, func(s *train.Spec) { s.Command = []string{"/no/such/program"} })
	y.plan(on("imageless", "gpu:0"), on("programless", "gpu:1"))
	if j := y.state("imageless", train.StateFailed); j.Reason != "ImageMissing" || !strings.Contains(j.Message, "localhost/nobody/has:this is not on node node1") {
		t.Errorf("image missing: %s: %s", j.Reason, j.Message)
	}
	if j := y.state("programless", train.StateFailed); !strings.Contains(j.Message, "/no/such/program") {
		t.Errorf("program missing: %s: %s", j.Reason, j.Message)
	}
	y.submit("greedy", 3, 1, func(s *train.Spec) {
		s.Command, s.MaxRestarts = []string{"/trainer", "-hidden", "6000", "-features", "6000"}, &none
	})
	y.submit("deleted", 30, 4, nil)
	y.plan(on("greedy", "gpu:0"), on("deleted", "gpu:1"))
	if j := y.state("greedy", train.StateFailed); !strings.Contains(j.Message, "want of main memory: the limit is 300Mi") {
		t.Errorf("out of memory: %s: %s", j.Reason, j.Message)
	}
	y.job("deleted", "two epochs", epochs(2))
	y.kubectl("delete", "pod", "deleted-1-0", "-n", y.namespace, "--wait=false")
	j := y.job("deleted", "recovering or further", func(j train.Job) bool { return j.Recoveries > 0 })
	if i := slices.IndexFunc(j.History, func(c train.Change) bool {
		return strings.Contains(c.Message, "deleted-1-0 was deleted by somebody else")
	}); i < 0 {
		t.Errorf("deleted by hand: %+v", j.History)
	}
	y.state("deleted", train.StateSucceeded)
	if at := began(y.ledger("deleted"), 2); at < 2 {
		t.Errorf("it began again after epoch %d, want its checkpoint", at)
	}
	y.crowded()
	y.nothingLeft()
}

// crowded is a device that somebody else has taken behind the plan's back.
func (y *yard) crowded() {
	y.t.Helper()
	node, err := y.node()
	y.must(err)
	squatter := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"squatter"},"spec":{"containers":[{"name":"c","image":%q,"imagePullPolicy":"Never",
		"command":["/trainer","-hidden","8"],"env":[{"name":"EPOCHS_TO_BE_DONE","value":"100000000"},{"name":"TRAINING_SET_SIZE","value":"100"},{"name":"BATCH_SIZE","value":"10"},
		{"name":"JOB_UUID","value":"x"},{"name":"SWITCHYARD_SNAPSHOTS_DIR","value":"/tmp"}],"resources":{"limits":{%q:"1"}}}]}}`, image, node.Devices[0].Resource)
	path := filepath.Join(y.dir, "squatter.json")
	y.must(os.WriteFile(path, []byte(squatter), 0o600))
	y.kubectl("apply", "-n", y.namespace, "-f", path)
	y.until("the squatter has its unit", func() bool {
		return y.kubectl("get", "pod", "squatter", "-n", y.namespace, "-o", "jsonpath={.spec.nodeName}") == "node1"
	})
	y.submit("crowded", 3, 1, nil)
	y.plan(on("crowded", "gpu:0"))
	j := y.job("crowded", "the reason", func(j train.Job) bool {
		return slices.ContainsFunc(j.History, func(c train.Change) bool {
			return strings.Contains(c.Message, "Insufficient "+node.Devices[0].Resource)
		})
	})
	if j.Recoveries > 0 {
		y.t.Errorf("a pod without room counts as %d recoveries", j.Recoveries)
	}
	y.kubectl("delete", "pod", "squatter", "-n", y.namespace, "--grace-period=0", "--force")
	y.state("crowded", train.StateSucceeded)
}

// The API server is away for half a minute: what runs goes on, what was planned starts afterwards, and nothing is done twice.
func TestAPIServerAway(t *testing.T) {
	y := newYard(t)
	y.submit("before", 100, 4, nil)
	y.submit("during", 3, 1, nil)
	y.plan(on("before", "gpu:0"))
	y.job("before", "an epoch", epochs(1))
	y.must(run(devcluster, "stop", "kube-apiserver", "--dir", clusterDir))
	back := time.NewTimer(30 * time.Second)
	y.plan(on("before", "gpu:0"), on("during", "gpu:1"))
	select {
	case <-back.C:
	case <-y.ctx.Done():
	}
	y.must(run(devcluster, "start", "kube-apiserver", "--dir", clusterDir))
	for _, id := range []train.JobID{"before", "during"} {
		if j := y.state(id, train.StateSucceeded); j.Attempt != 1 {
			t.Errorf("%s took %d attempts, want one: %s", id, j.Attempt, j.Message)
		}
		y.ledger(id)
	}
	y.nothingLeft()
}

// The kubelet is silent: the attempt is given up, and the next one begins when the node is back and what ran there has ended.
func TestNodeLost(t *testing.T) {
	y := newYard(t, "--node-lost-after=3s", "--pod-schedule-limit=2m")
	y.submit("lost", 1500, 4, nil)
	y.plan(on("lost", "gpu:0"))
	y.job("lost", "two epochs", epochs(2))
	y.must(run(devcluster, "stop", "kubelet", "--dir", clusterDir))
	t.Cleanup(func() { _ = run(devcluster, "start", "kubelet", "--dir", clusterDir) })
	j := y.job("lost", "recovering", func(j train.Job) bool { return j.Recoveries == 1 })
	if !slices.ContainsFunc(j.History, func(c train.Change) bool {
		return c.Reason == "NodeLost" && strings.Contains(c.Message, "node node1 has been silent")
	}) {
		t.Errorf("history %+v", j.History)
	}
	y.attempt("lost", "number 2 is claimed", func(a train.Attempt) bool { return a.Number == 2 })
	y.must(run(devcluster, "start", "kubelet", "--dir", clusterDir))
	y.running("lost", 2)
	y.until("attempt 2 begins", func() bool { return began(y.ledger("lost"), 2) >= 2 })
	y.plan()
	y.state("lost", train.StatePreempted)
	y.ledger("lost")
	y.nothingLeft()
}

// The executor is killed again and again, in the middle of whatever it does: no rank of an attempt begins twice, and all jobs succeed.
func TestExecutorKilled(t *testing.T) {
	y := newYard(t)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same draw every time
	const jobs = 6
	var ids []train.JobID
	for i := range jobs {
		id := train.JobID(fmt.Sprintf("k%d", i))
		y.submit(id, 6, 1, nil)
		ids = append(ids, id)
	}
	ended := func(id train.JobID) bool {
		e, err := y.jobs.Get(y.ctx, string(id))
		return err == nil && e.Value.State.Terminal()
	}
	kills := 0
	for left := slices.Clone(ids); len(left) > 0; left = slices.DeleteFunc(left, ended) {
		// Each plan has other use for the devices, so that starts, ends and moves are all in the middle of something.
		switch {
		case kills%3 == 0:
			y.plan(on(left[0], "gpu:0", "gpu:1"))
		case len(left) > 1:
			y.plan(on(left[0], "gpu:0"), on(left[1], "gpu:1"))
		default:
			y.plan(on(left[0], "gpu:1"))
		}
		pause := time.NewTimer(time.Duration(200+random.IntN(2500)) * time.Millisecond)
		select {
		case <-pause.C:
		case <-y.ctx.Done():
			t.Fatalf("%v have not ended after %d kills", left, kills)
		}
		if kills < 20 {
			y.kill("executor")
			y.start("executor")
			kills++
		}
	}
	for _, id := range ids {
		if j := y.state(id, train.StateSucceeded); j.Recoveries > 0 {
			t.Errorf("%s was lost %d times: %s", id, j.Recoveries, j.Message)
		}
		y.ledger(id)
	}
	t.Logf("%d kills", kills)
	y.nothingLeft()
}
