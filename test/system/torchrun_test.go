package system

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// stockTorch trains with torch.distributed as its tutorials do, and knows nothing of Switchyard. Its first attempt goes
// on until SIGUSR1, which its processes agree on; its second one trains one more epoch. It reports by
// the status protocol of the Kubeflow trainer if an argument says so.
const stockTorch = `
import json, os, signal, sys, time, urllib.request
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

name, reports = sys.argv[1], "report" in sys.argv
leave = torch.zeros(1)
signal.signal(signal.SIGUSR1, lambda *_: leave.fill_(1))
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
snapshot, start = name + ".pt", 0
if os.path.exists(snapshot):
    state = torch.load(snapshot)
    model.load_state_dict(state["model"])
    start = state["epoch"] + 1
    print("resumed at epoch", start, flush=True)
for epoch in range(start, start + 1 if start else 10**9):
    for step in range(10):
        loss = model(torch.randn(8, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
    agreed = leave.clone()
    dist.all_reduce(agreed, op=dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        torch.save({"model": model.state_dict(), "epoch": epoch}, snapshot + ".tmp")
        os.replace(snapshot + ".tmp", snapshot)
        print(f"epoch {epoch} loss {loss.item():.4f} of {dist.get_world_size()} processes", flush=True)
        if reports:
            metrics = {"loss": loss.item(), "current_step": 10 * (epoch + 1), "current_epoch": epoch + 1.0}
            token = open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read().strip()
            body = {"trainerStatus": {"metrics": [{"name": k, "value": str(v)} for k, v in metrics.items()]}}
            urllib.request.urlopen(urllib.request.Request(os.environ["KUBEFLOW_TRAINER_SERVER_URL"], data=json.dumps(body).encode(),
                headers={"Authorization": "Bearer " + token, "Content-Type": "application/json"}, method="POST"), timeout=60)
    if agreed.item():
        break
dist.destroy_process_group()
`

// Unchanged PyTorch scripts are preempted and go on: under torchrun on one and on two devices, and without torchrun as
// one process per device.
func TestStockTorchScriptsArePreemptedAndGoOn(t *testing.T) {
	t.Parallel()
	if os.Getenv("SCRIPTS") == "" {
		t.Skip("SCRIPTS is not set (make test-scripts): minutes more, which importing torch a dozen times takes")
	}
	python := debianTorch()
	if python == "" {
		t.Fatal("python3 has no torch here (Debian: apt-get install python3-torch)")
	}
	c := newCluster(t)
	c.env = []string{"OMP_NUM_THREADS=1"}
	c.flags = []string{"--allow-root", c.dir, "--cpu-slots", "2"}
	path := filepath.Join(c.dir, "stock.py")
	if err := os.WriteFile(path, []byte(stockTorch), 0o600); err != nil {
		t.Fatal(err)
	}
	c.start("up")
	c.connect()
	// torchrun of PyTorch 1.13 needs the options with Python 3.11, whose flags have no 0.
	torchrun := []string{python, "-m", "torch.distributed.run", "--redirects", "1", "--tee", "1", path}
	read := &train.ProgressSpec{Pattern: `epoch (?P<epoch>\d+) loss (?P<loss>\S+)`}
	for i, run := range []struct {
		id   train.JobID
		spec train.Spec
	}{
		{"one", train.Spec{Command: append(torchrun, "one", "report")}},
		{"two", train.Spec{Command: append(torchrun, "two"), MinDevices: 2, Progress: read}},
		{"each", train.Spec{Command: []string{python, path, "each"}, MinDevices: 2, Launch: train.LaunchPerDevice, Progress: read}},
	} {
		run.spec.Checkpoint = string(run.id) + ".pt"
		if run.id == "one" {
			run.spec.Launch = train.LaunchPerNode
		}
		c.submitSpec(run.id, run.spec)
		c.await(fmt.Sprintf("epochs of %s", run.id), func(jobs map[train.JobID]train.Job) bool {
			if j := jobs[run.id]; j.State.Terminal() {
				t.Fatalf("%s: %s: %s", j.State, j.Message, j.LogTail)
			}
			return jobs[run.id].EpochsDone >= 1
		})
		c.eventually(fmt.Sprintf("%s can be asked to leave", run.id), func() error {
			if c.report(run.id, 1).Signal != train.SignalSave {
				return errors.New("not yet")
			}
			return nil
		})
		priority, urgent := 90, train.JobID(fmt.Sprint("urgent", i))
		c.submitSpec(urgent, train.Spec{Command: []string{"true"}, Priority: &priority, MinDevices: 2})
		jobs := c.await(fmt.Sprintf("the end of %s", run.id), allEnded(2*(i+1)))
		if j := jobs[run.id]; j.State != train.StateSucceeded || j.Preemptions != 1 || jobs[urgent].State != train.StateSucceeded {
			t.Errorf("%s: %s after %d preemptions: %s %s", run.id, j.State, j.Preemptions, j.Message, j.LogTail)
		}
		_, log := c.command("logs", string(run.id))
		processes := max(run.spec.MinDevices, 1)
		if !strings.Contains(log, "resumed at epoch") || !strings.Contains(log, fmt.Sprintf("of %d processes", processes)) {
			t.Errorf("%s did not resume on %d devices:\n%s", run.id, processes, log)
		}
	}
}
