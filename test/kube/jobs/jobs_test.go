package jobs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/test/kube/lab"
)

// ledger returns what the processes of a job wrote, and fails if something ran twice.
func (y *yard) ledger(id train.JobID) lab.Ledger {
	y.t.Helper()
	l, err := lab.ReadLedger(filepath.Join(y.snapshots(), string(id), "ledger"))
	y.must(err)
	for _, fault := range l.Faults() {
		y.t.Errorf("job %s: %s", id, fault)
	}
	return l
}

func epochs(n int) func(train.Job) bool {
	return func(j train.Job) bool { return j.EpochsDone >= n }
}

// A job runs on one device, then on two, loses them, and continues from its checkpoint each time.
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
		if got := entries.Began(attempt); got < least {
			t.Errorf("attempt %d began after epoch %d, want %d or later", attempt, got, least)
		}
	}
	y.until("the whole log, though the pods are gone", func() bool {
		log := y.log("life")
		return strings.Contains(log, "attempt 3 of life") && strings.Contains(log, "epoch 40/40")
	})
}

// The kubelet is silent: the attempt is given up, and the next one begins when the node is back and the old processes
// have ended.
func TestNodeLost(t *testing.T) {
	y := newYard(t, "--node-lost-after=3s", "--pod-schedule-limit=2m")
	y.submit("lost", 1500, 4, nil)
	y.plan(on("lost", "gpu:0"))
	y.job("lost", "two epochs", epochs(2))
	y.devcluster("stop", "kubelet")
	t.Cleanup(func() { _, _ = y.cluster.Run(context.Background(), "start", "kubelet") })
	j := y.job("lost", "recovering", func(j train.Job) bool { return j.Recoveries == 1 })
	if !slices.ContainsFunc(j.History, func(c train.Change) bool {
		return c.Reason == "NodeLost" && strings.Contains(c.Message, "node node1 has been silent")
	}) {
		t.Errorf("history %+v", j.History)
	}
	y.attempt("lost", "number 2 is claimed", func(a train.Attempt) bool { return a.Number == 2 })
	y.devcluster("start", "kubelet")
	y.running("lost", 2)
	y.until("attempt 2 begins", func() bool { return y.ledger("lost").Began(2) >= 2 })
	y.plan()
	y.state("lost", train.StatePreempted)
	y.ledger("lost")
	y.nothingLeft()
}

// The executor is killed repeatedly, in the middle of its work: no rank of an attempt begins twice, and all jobs
// succeed.
func TestExecutorKilled(t *testing.T) {
	y := newYard(t)
	random := rand.New(rand.NewPCG(1, 2))
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
		// Each plan uses the devices differently, so that starts, ends and moves are all in progress.
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
	y.leaveBehind(ids[0])
	y.nothingLeft()
}

// leaveBehind makes the second pod of an attempt that has ended, as a killed executor does whose last request reached
// the cluster late, and starts the next executor while the pod is too young to be judged.
func (y *yard) leaveBehind(id train.JobID) {
	y.t.Helper()
	_, err := y.cluster.Kubectl(y.ctx, "run", "late", "-n", y.namespace, "--image", image, "--restart=Never", "--image-pull-policy=Never",
		"--labels", "app.kubernetes.io/managed-by=switchyard,switchyard.dev/job="+train.PodSlug(id)+",switchyard.dev/attempt=1,switchyard.dev/rank=1",
		"--annotations", "switchyard.dev/ranks=2", "--annotations", "switchyard.dev/job="+string(id), "--command", "--", "/trainer", "-h")
	if err != nil {
		y.t.Fatal(err)
	}
	y.kill("executor")
	y.start("executor")
}
