package cluster

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// The version of a service is that of the process that works. A bus that does not answer is shown and no error.
func TestVersion(t *testing.T) {
	s := clitest.New(t, Commands()...)
	clitest.Put(t, s.Bus, contract.Leases, "planner", contract.Lease{Holder: "other", Build: &contract.Build{Version: "v9.0.0", Events: 9, Records: 2}})
	clitest.Put(t, s.Bus, contract.Leases, "energy", contract.Lease{Holder: "old"})
	for id, version := range map[train.NodeID]string{"n1": "v9.0.0", "n2": "v9.0.0", "n3": ""} {
		clitest.Put(t, s.Bus, contract.Nodes, string(id), train.Node{ID: id, Version: version})
	}
	if code, out, _ := s.Run("version"); code != exit.OK || !strings.Contains(out, "v9.0.0, facts v9, records v2: planner\n") ||
		!strings.Contains(out, runtime.GOOS+"/"+runtime.GOARCH) || !strings.Contains(out, "older than versions: energy") ||
		!strings.Contains(out, "agents      older than versions: 1, among them that of node n3\nagents      v9.0.0: 2, among them that of node n1\n") {
		t.Errorf("exit %d: %s", code, out)
	}
	code, out, _ := clitest.Execute(Commands(), "", "version", "--nats", "nats://127.0.0.1:1", "-o", "json")
	v := clitest.Parse[versions](t, out)
	if code != exit.OK || v.Client.Events < 1 || v.Client.Records != contract.Version || v.Client.Go == "" || !strings.Contains(v.Trouble, "no bus at") {
		t.Errorf("exit %d: %s", code, out)
	}
	// A process that leads says what it is.
	err := s.Bus.Lead(t.Context(), bus.Claim{Task: "profiler", Holder: "me"}, func(ctx context.Context, _ uint64) error {
		held, err := bus.OpenKV(ctx, s.Bus, contract.Leases)
		if err != nil {
			return err
		}
		lease, err := held.Get(ctx, "profiler")
		if err == nil && (lease.Value.Build == nil || *lease.Value.Build != v.Client) {
			t.Errorf("the holder is %+v, this program %+v", lease.Value.Build, v.Client)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
