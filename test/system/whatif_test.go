package system

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Real jobs run; then every decision about them is replayed, and their workload is simulated: with the same policy,
// another one and on more nodes.
func TestRecordedDecisionsAreReplayedAndTheWorkloadSimulated(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	c.submit("wide", 12, 2)
	c.await("wide runs", func(jobs map[train.JobID]train.Job) bool { return jobs["wide"].EpochsDone >= 2 })
	c.submit("second", 6, 1)
	c.submit("third", 6, 1)
	c.await("all end", func(jobs map[train.JobID]train.Job) bool {
		return jobs["wide"].State.Terminal() && jobs["second"].State.Terminal() && jobs["third"].State.Terminal()
	})
	generations := 0
	err := c.bus.Stored(c.ctx, event.StreamPlans, nil, time.Time{}, func(bus.Message) { generations++ })
	if err != nil || generations < 3 {
		t.Fatalf("%d plans, error %v", generations, err)
	}
	bundle := filepath.Join(c.dir, "bundle.tar.gz")
	if code, out := c.command("bundle", "--out", bundle); code != 0 {
		t.Fatalf("bundle (exit %d): %s", code, out)
	}
	for g := 1; g <= generations; g++ {
		for _, more := range [][]string{nil, {"--bundle", bundle}} {
			code, out := c.command(append([]string{"replay", fmt.Sprint(g)}, more...)...)
			if code != 0 || !strings.Contains(out, "identical") {
				t.Errorf("replay %d %v (exit %d): %s", g, more, code, out)
			}
		}
	}
	code, out := c.command("simulate", "--bundle", bundle, "--policy", "fifo,optimus", "--add-nodes", "2", "-o", "json")
	if code != 0 {
		t.Fatalf("simulate (exit %d): %s", code, out)
	}
	var rows []struct {
		Kind, Policy     string
		Nodes, Completed int
		AvgJCTSeconds    float64 `json:"avg_jct_seconds"`
		LeftOut          []any   `json:"left_out"`
	}
	// A line before the rows says so if the node had not reported when the first plan was made.
	if err := json.Unmarshal([]byte(out[max(0, strings.Index(out, "[")):]), &rows); err != nil || len(rows) != 4 {
		t.Fatalf("%v in %s", err, out)
	}
	measured, same := rows[0], rows[1]
	if measured.Kind != "measured" || same.Kind != "same_policy" || measured.Policy != same.Policy || measured.Completed != 3 || len(measured.LeftOut) != 0 {
		t.Errorf("rows %+v", rows[:2])
	}
	// The services' own work is part of the measured time, and takes any time on a busy machine. The training is what
	// the simulation has to show.
	trained := c.trainedSeconds() / 3
	if same.AvgJCTSeconds < trained/2 || same.AvgJCTSeconds > 2*measured.AvgJCTSeconds {
		t.Errorf("the same policy takes %v s in the simulation, %v s were measured, %v s of them of training", same.AvgJCTSeconds, measured.AvgJCTSeconds, trained)
	}
	for _, r := range rows[2:] {
		if r.Kind != "what_if" || r.Nodes != 3 || r.Completed != 3 || r.AvgJCTSeconds <= 0 || r.AvgJCTSeconds > same.AvgJCTSeconds*1.2 {
			t.Errorf("with two more nodes: %+v", r)
		}
	}
}

// trainedSeconds adds up the epochs of all jobs.
func (c *cluster) trainedSeconds() float64 {
	c.t.Helper()
	sum, epochs := 0.0, event.JobSubject("*", event.FactEpochEnded).String()
	err := c.bus.Stored(c.ctx, event.StreamJobs, []string{epochs}, time.Time{}, func(m bus.Message) {
		e, err := event.Decode[event.EpochEnded](m.Data)
		if err != nil {
			c.t.Error(err)
		}
		sum += e.EpochSeconds
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return sum
}
