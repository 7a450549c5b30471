package system

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// TestParameterServersUnderEveryPolicy trains a job around a parameter server to its end, on one machine: the executor
// starts the servers that the plan gives. A job whose server is larger than the machine is rejected with the reason.
func TestParameterServersUnderEveryPolicy(t *testing.T) {
	for _, policy := range plan.PolicyNames() {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.flags = []string{"--cpu-slots", "4", "--policy", policy}
			c.start("up")
			c.connect()
			c.awaitNode()
			spec := train.Spec{
				Command: []string{filepath.Join(binaries, "gotrainer"), "-hidden", "32"}, MaxEpochs: 5, TrainingSetSize: 600, BatchSize: 32,
				MinDevices: 2, MaxDevices: 2, Launch: train.LaunchPerDevice, Strategy: train.StrategyParameterServer, ParameterServers: &train.ServersSpec{Max: 1},
			}
			c.submitSpec("served", spec)
			spec.ParameterServers = &train.ServersSpec{Max: 1, Cores: 4096}
			c.submitSpec("huge", spec)
			jobs := c.await("both ends", func(jobs map[train.JobID]train.Job) bool {
				return jobs["served"].State.Terminal() && jobs["huge"].State.Terminal()
			})
			if j := jobs["served"]; j.State != train.StateSucceeded || j.EpochsDone != 5 {
				t.Errorf("%s after %d epochs: %s", j.State, j.EpochsDone, j.Message)
			}
			var a train.Attempt
			if err := json.Unmarshal(c.bucket("attempts")["served"], &a); err != nil {
				t.Fatal(err)
			}
			if len(a.Servers) != 1 || a.Servers[0] != (train.ServerPart{Node: a.Node, Count: 1}) {
				t.Errorf("attempt with servers %+v, want 1 on node %s", a.Servers, a.Node)
			}
			if j := jobs["huge"]; j.State != train.StateRejected || !strings.Contains(j.Message, "parameter_servers.cores") {
				t.Errorf("a server of 4096 cores: %s: %s", j.State, j.Message)
			}
		})
	}
}
