package system

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// replicated returns the services that may run as several processes.
func replicated() []string { return []string{"admission", "profiler", "planner", "energy"} }

// leader returns the replica that holds a service's lease, once a live one other than not holds it.
func (c *cluster) leader(service, not string) string {
	c.t.Helper()
	kv, err := bus.OpenKV(c.ctx, c.bus, contract.Leases)
	if err != nil {
		c.t.Fatal(err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if e, err := kv.Get(c.ctx, service); err == nil {
			_, dir, _ := strings.Cut(e.Value.Holder, ":")
			if name := service + "@" + filepath.Base(dir); name != not && c.procs[name] != nil {
				return name
			}
		}
		select {
		case <-c.ctx.Done():
			c.t.Fatalf("no process leads %s", service)
		case <-tick.C:
		}
	}
}

// TestLossOfLeadersAtRandom runs two processes of each service and repeatedly kills the leader, or stops it for longer
// than its lease and resumes it, while jobs come in.
func TestLossOfLeadersAtRandom(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	c := newCluster(t)
	c.start("bus")
	c.connect()
	c.start("executor")
	c.start("nodeagent")
	for _, s := range replicated() {
		c.start(s + "@a")
		c.start(s + "@b")
	}
	epochs := map[string]int{}
	submit := func(id string, devices int) {
		epochs[id] = 8
		c.submit(train.JobID(id), 8, devices)
	}
	submit("first", 2)
	for round := range 4 {
		c.await(fmt.Sprintf("progress in round %d", round), progressed(4*round+1))
		victims := replicated()
		random.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
		for _, service := range victims[:2] {
			name := c.leader(service, "")
			submit(fmt.Sprintf("meanwhile-%d-%s", round, service), 1)
			if round%2 == 0 {
				c.kill(name, syscall.SIGKILL)
				c.start(name)
				continue
			}
			paused := c.procs[name].Process
			if err := paused.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			c.leader(service, name)
			if err := paused.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.verify(epochs, nil)
}
