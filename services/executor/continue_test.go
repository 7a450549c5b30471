package executor

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// continues admits a job that continues j1 after two epochs.
func (y *yard) continues(id train.JobID, spec train.Spec) {
	y.t.Helper()
	spec.Continue = "j1"
	y.job(id, spec)
	y.change(id, func(j *train.Job) { j.EpochsDone = 2 })
}

func (y *yard) log(id train.JobID) string {
	y.t.Helper()
	data, err := os.ReadFile(installation.Layout{DataDir: y.dir}.Output(id))
	y.must(err)
	return string(data)
}

// A job that continues another has a copy of its checkpoints: neither sees what becomes of the other.
func TestAJobContinuesAnother(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	const folder = `set -e; cd "${SWITCHYARD_SNAPSHOTS_DIR:-/snapshots}/$JOB_UUID"; `
	y.job("j1", command(folder+"echo one > model; ln -s model newest; ln -s /etc/passwd out; echo all > ../shared"))
	y.plan(on("j1", "cpu:0"))
	fact[event.Succeeded](y, "j1", event.FactSucceeded)
	layout := installation.Layout{DataDir: y.dir}
	// A crash has left half a copy.
	half := filepath.Join(layout.Snapshots("j2"), "shared")
	y.must(os.MkdirAll(filepath.Dir(half), 0o700))
	y.must(os.WriteFile(half, []byte("al"), 0o600))
	y.continues("j2", command(folder+`echo $JOB_RESTARTED $EPOCHS_DONE $(cat newest ../shared) $(ls); echo two > model; echo more > ../shared`))
	y.plan(on("j2", "cpu:0"))
	if started := fact[event.Started](y, "j2", event.FactStarted); started.EpochsDone != 2 || started.FromScratch {
		t.Errorf("started as %+v", started)
	}
	fact[event.Succeeded](y, "j2", event.FactSucceeded)
	if log := y.log("j2"); !strings.Contains(log, "TRUE 2 one all model newest\n") {
		t.Errorf("log %q", log)
	}
	for id, want := range map[train.JobID]string{"j1": "one\nall\n", "j2": "two\nmore\n"} {
		saved, err := filepath.Glob(filepath.Join(layout.Snapshots(id), "*", "model"))
		y.must(err)
		text := ""
		for _, path := range append(saved[:1:1], filepath.Join(layout.Snapshots(id), "shared")) {
			data, err := os.ReadFile(path)
			y.must(err)
			text += string(data)
		}
		if text != want {
			t.Errorf("%s has saved %q, want %q", id, text, want)
		}
	}
	y.must(os.RemoveAll(layout.Job("j1")))
	y.continues("j3", command("true"))
	y.plan(on("j3", "cpu:0"))
	if got := fact[event.Failed](y, "j3", event.FactFailed); !strings.Contains(got.Exit.Message, "continue j1: nothing that it saved is left on this machine") {
		t.Errorf("failed as %+v", got)
	}
}

// The files of a checkpoint pattern in the job's own working folder are copied, too; those of a folder that both jobs
// name are where they were.
func TestAJobContinuesFromFilesOfAPattern(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.agent(func(http.ResponseWriter, *http.Request) {})
	first := command("mkdir ckpt; echo one > ckpt/1.pt; echo x > other")
	first.Checkpoint = "ckpt/*.pt"
	y.job("j1", first)
	y.plan(on("j1", "cpu:0"))
	fact[event.Succeeded](y, "j1", event.FactSucceeded)
	own := command("echo own $(cat ckpt/1.pt) $(ls)")
	own.Checkpoint = first.Checkpoint
	y.continues("own", own)
	shared := command("echo shared $(ls)")
	shared.Checkpoint, shared.WorkDir = "*.pt", t.TempDir()
	y.must(os.WriteFile(filepath.Join(shared.WorkDir, "2.pt"), nil, 0o600))
	y.continues("shared", shared)
	y.plan(on("own", "cpu:0"), on("shared", "cpu:1"))
	for id, want := range map[train.JobID]string{"own": "own one ckpt\n", "shared": "shared 2.pt\n"} {
		fact[event.Succeeded](y, id, event.FactSucceeded)
		if log := y.log(id); !strings.Contains(log, want) {
			t.Errorf("log %q, want %q", log, want)
		}
	}
}

// A job whose folder was purged begins again, and its program is not told to load a checkpoint.
func TestAPurgedJobBeginsAgain(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	spec := command("echo restarted $JOB_RESTARTED after $EPOCHS_DONE; exit 3")
	y.job("j1", spec)
	y.change("j1", func(j *train.Job) { j.Spec.Retries = new(int) })
	y.plan(on("j1", "cpu:0"))
	fact[event.Failed](y, "j1", event.FactFailed)
	y.attempt("j1", "published", published)
	layout := installation.Layout{DataDir: y.dir}
	y.until("the end of the first attempt's files", func() bool { _, err := os.Stat(layout.Attempt("j1", 1)); return os.IsNotExist(err) })
	y.must(os.RemoveAll(layout.Job("j1")))
	y.change("j1", func(j *train.Job) { j.State, j.Attempt, j.EpochsDone, j.Resumed = train.StateQueued, 1, 2, 1 })
	y.plan(on("j1", "cpu:0"))
	y.until("the second attempt", func() bool { return len(y.factsOf("j1", event.FactStarted)) == 2 })
	if started := fact[event.Started](y, "j1", event.FactStarted); started.EpochsDone != 0 || !started.FromScratch {
		t.Errorf("started as %+v", started)
	}
	y.attempt("j1", "ended", func(a train.Attempt) bool { return a.Number == 2 && a.Phase == train.PhaseExited })
	if log := y.log("j1"); !strings.Contains(log, "restarted FALSE after 0\n") {
		t.Errorf("log %q", log)
	}
}

// A job goes on on another machine: its folder in a snapshots_dir that both machines see has the name that the first
// machine made, and the program finds there what it has saved. Without such a folder it begins again.
func TestAJobFindsItsCheckpointsFromAnotherMachine(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	const saves = `cd "${SWITCHYARD_SNAPSHOTS_DIR:-/snapshots}/$JOB_UUID" && echo "restarted $JOB_RESTARTED after $EPOCHS_DONE: $(cat model)"; echo "$JOB_UUID" >> model; exit 3`
	shared, own := command(saves), command(saves)
	shared.SnapshotsDir = t.TempDir()
	jobs := []train.JobID{"shared", "own"}
	y.job("shared", shared)
	y.job("own", own)
	y.plan(on("shared", "cpu:0"), on("own", "cpu:1"))
	for _, id := range jobs {
		fact[event.Failed](y, id, event.FactFailed)
		y.attempt(id, "published", published)
	}
	y.stop()

	y.dir, y.node = t.TempDir(), "n2"
	n1, err := y.nodes.Get(t.Context(), "n1")
	y.must(err)
	n1.Value.ID = "n2"
	y.must(y.nodes.Put(t.Context(), "n2", n1.Value))
	for _, id := range jobs {
		y.change(id, func(j *train.Job) { j.State, j.Attempt, j.EpochsDone, j.Resumed = train.StateQueued, 1, 2, 1 })
	}
	y.run()
	there := func(id train.JobID, device train.DeviceID) train.Allocation {
		return train.Allocation{Job: id, Node: "n2", Devices: []train.DeviceID{device}}
	}
	y.plan(there("shared", "cpu:0"), there("own", "cpu:1"))
	for _, id := range jobs {
		y.attempt(id, "ended", func(a train.Attempt) bool { return a.Number == 2 && a.Phase == train.PhaseExited })
	}
	if log := y.log("shared"); !strings.Contains(log, "restarted TRUE after 2: ") || strings.Contains(log, "after 2: \n") {
		t.Errorf("log %q, want what the first machine has saved", log)
	}
	if names, err := filepath.Glob(filepath.Join(shared.SnapshotsDir, strings.Repeat("?", 64))); err != nil || len(names) != 1 {
		t.Errorf("%d folders of one job, error %v", len(names), err)
	}
	if log := y.log("own"); !strings.Contains(log, "restarted FALSE after 0: \n") {
		t.Errorf("log %q, want a new beginning", log)
	}
}
