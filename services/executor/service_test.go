package executor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestPlanToSuccess(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.job("j1", command("echo hello from $SWITCHYARD_JOB"))
	y.plan(on("j1", "cpu:0"))
	if got := fact[event.Started](y, "j1", event.FactStarted); got.Attempt != 1 || got.Node != "n1" || got.Generation != 1 || len(got.Devices) != 1 {
		t.Errorf("started %+v", got)
	}
	if got := fact[event.Succeeded](y, "j1", event.FactSucceeded); got.Attempt != 1 {
		t.Errorf("succeeded %+v", got)
	}
	a := y.attempt("j1", "published", published)
	if a.Outcome != train.OutcomeSucceeded || a.Exit == nil || a.PID == 0 || a.CapabilityHash == "" {
		t.Errorf("record %+v", a)
	}
	y.change("j1", func(j *train.Job) { j.State = train.StateSucceeded })
	chunk, err := bus.Ask[rpc.LogRequest, rpc.LogChunk](y.t.Context(), y.bus, rpc.LogSubject("n1"), rpc.LogRequest{Job: "j1"})
	y.must(err)
	if !strings.Contains(string(chunk.Data), "hello from j1\n") || chunk.Next != chunk.Size {
		t.Errorf("log %q of %d, next %d", chunk.Data, chunk.Size, chunk.Next)
	}
	y.until("the end of the log", func() bool {
		chunk, err := bus.Ask[rpc.LogRequest, rpc.LogChunk](y.t.Context(), y.bus, rpc.LogSubject("n1"), rpc.LogRequest{Job: "j1", Offset: chunk.Next})
		y.must(err)
		return chunk.Ended && len(chunk.Data) == 0
	})
	y.until("the private files are gone", func() bool {
		_, err := os.Stat(installation.Layout{DataDir: y.dir}.Attempt("j1", 1))
		return errors.Is(err, os.ErrNotExist)
	})
}

func TestFailuresArePublished(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.job("status", command("echo no good; exit 3"))
	y.job("missing", train.Spec{Command: []string{"no-such-program"}})
	y.plan(on("status", "cpu:0"), on("missing", "cpu:1"))
	if got := fact[event.Failed](y, "status", event.FactFailed); got.Exit.Code != 3 || got.Exit.LogTail != "no good\n" || got.Reason.Code != "ExitStatus" {
		t.Errorf("status: %+v", got)
	}
	if got := fact[event.Failed](y, "missing", event.FactFailed); got.Exit.Message != "command not found: no-such-program" || got.Reason.Code != "NotStarted" {
		t.Errorf("missing: %+v", got)
	}
	// The devices are free again, and there is no container runtime for an image here.
	y.job("image", train.Spec{Image: "some/image"})
	y.plan(on("image", "cpu:0"))
	if got := fact[event.Failed](y, "image", event.FactFailed); !strings.Contains(got.Reason.Message, "container runtime") {
		t.Errorf("image: %+v", got)
	}
	if n := len(y.factsOf("missing", event.FactStarted)) + len(y.factsOf("image", event.FactStarted)); n != 0 {
		t.Errorf("%d starts were published of programs that never ran", n)
	}
}

// A killed executor leaves its jobs running; the next one finds them, also those that ended meanwhile.
func TestPreemptionAndResumption(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.job("j1", command(`echo "attempt $SWITCHYARD_ATTEMPT restarted $JOB_RESTARTED done $EPOCHS_DONE"; while ! [ -e `+y.path("go")+`$SWITCHYARD_ATTEMPT ]; do sleep 0.02; done`))
	y.plan(on("j1", "cpu:0"))
	y.attempt("j1", "running", isRunning(1))
	y.plan(on("j1", "cpu:0", "cpu:1"))
	if got := fact[event.StopRequested](y, "j1", event.FactStopRequested); got.Cause != train.StopRescale || got.Attempt != 1 {
		t.Errorf("stop requested %+v", got)
	}
	// The agent answers the code with a stop, and the code leaves after its first epoch.
	_, err := y.reports.Swap(y.t.Context(), "j1.1", train.AttemptReport{Job: "j1", Attempt: 1, EpochsDone: 1, Spoke: true, StopAnswered: true}, 0)
	y.must(err)
	y.touch("go1")
	if got := fact[event.Preempted](y, "j1", event.FactPreempted); got.Cause != train.StopRescale || got.EpochsDone != 1 || got.Forced {
		t.Errorf("preempted %+v", got)
	}
	a := y.attempt("j1", "running again", isRunning(2))
	if a.StartedEpochs != 1 || len(a.Devices) != 2 || a.Generation != 2 {
		t.Errorf("second attempt %+v", a)
	}
	// It was not asked to leave: an exit with status 0 is its end.
	y.touch("go2")
	got := fact[event.Succeeded](y, "j1", event.FactSucceeded)
	if got.Attempt != 2 || got.EpochsDone != 1 {
		t.Errorf("succeeded %+v", got)
	}
	data, err := os.ReadFile(installation.Layout{DataDir: y.dir}.Output("j1"))
	y.must(err)
	for _, line := range []string{"attempt 1 restarted FALSE done 0\n", "attempt 2 restarted TRUE done 1\n"} {
		if !strings.Contains(string(data), line) {
			t.Errorf("log %q lacks %q", data, line)
		}
	}
}

// A plan takes the devices and the next one gives them back before the code was answered: it goes on, and may be
// asked again.
func TestAStopIsWithdrawn(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.job("j1", command("exec sleep 1000"))
	y.plan(on("j1", "cpu:0"))
	y.attempt("j1", "running", isRunning(1))
	y.plan(on("j1", "cpu:1"))
	y.attempt("j1", "asked to leave", func(a train.Attempt) bool { return a.Stop == train.StopRescale })
	y.plan(on("j1", "cpu:0"))
	if got := fact[event.StopWithdrawn](y, "j1", event.FactStopWithdrawn); got.Attempt != 1 || got.Generation != 3 {
		t.Errorf("withdrawn: %+v", got)
	}
	y.attempt("j1", "going on", func(a train.Attempt) bool { return a.Live() && a.Number == 1 && a.Stop == train.StopNone })
	y.plan(on("j1", "cpu:1"))
	y.attempt("j1", "asked again", func(a train.Attempt) bool { return a.Stop == train.StopRescale })
	y.until("it to be published twice", func() bool { return len(y.factsOf("j1", event.FactStopRequested)) == 2 })
}

func TestGraceRunsOut(t *testing.T) {
	t.Parallel()
	y := newYard(t, "--stop-grace=50ms")
	y.job("j1", command("trap '' TERM; while :; do sleep 0.02; done"))
	y.plan(on("j1", "cpu:0"))
	y.attempt("j1", "running", isRunning(1))
	y.plan()
	if got := fact[event.Preempted](y, "j1", event.FactPreempted); got.Cause != train.StopPreempt || !got.Forced {
		t.Errorf("preempted %+v", got)
	}
	y.attempt("j1", "published", published)
}

func TestCancel(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.job("waits", command("true"))
	y.job("runs", command("touch "+y.path("runs")+"; exec sleep 1000"))
	y.plan(on("runs", "cpu:0"))
	y.attempt("runs", "running", isRunning(1))
	for _, id := range []train.JobID{"waits", "runs"} {
		y.change(id, func(j *train.Job) { j.CancelRequested = true })
		fact[event.Cancelled](y, id, event.FactCancelled)
		if a := y.attempt(id, "published", published); a.Outcome != train.OutcomeCancelled {
			t.Errorf("%s: %+v", id, a)
		}
	}
	// A plan that came too late starts nothing.
	y.plan(on("waits", "cpu:0"))
	y.job("other", command("true"))
	y.plan(on("waits", "cpu:0"), on("other", "cpu:1"))
	fact[event.Succeeded](y, "other", event.FactSucceeded)
	if n := len(y.factsOf("waits", event.FactStarted)); n != 0 {
		t.Error("a cancelled job was started")
	}
}

// Every way in which an executor can die between two steps of a start leaves exactly one start. Jobs go on without a
// bus, and what happened to them meanwhile is published when it is back.
func TestSettings(t *testing.T) {
	for _, test := range []struct{ flag, want string }{
		{"--stop-grace=-1s", "--stop-grace -1s"},
		{"--kill-after=0s", "--kill-after 0s"},
		{"--python-path=libs", "--python-path libs"},
		{"--job-log-limit=0", "--job-log-limit 0"},
		{"--job-mounts=always", "--job-mounts always"},
	} {
		if _, err := settings.Of(test.flag); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want it named", test.flag, err)
		}
	}
}

// A job finds its folders under the names that its user knows, with mounts and without.
func TestFoldersOfAJob(t *testing.T) {
	t.Parallel()
	for _, mounts := range []string{"auto", "never"} {
		t.Run(mounts, func(t *testing.T) {
			y := newYard(t, "--job-mounts="+mounts)
			custom, snapshots := t.TempDir(), t.TempDir()
			script := "echo in $PWD; cd ${SWITCHYARD_SNAPSHOTS_DIR:-/snapshots}/$JOB_UUID && echo state > saved"
			y.must(os.WriteFile(filepath.Join(custom, "x.sh"), []byte(script), 0o600))
			y.job("j1", train.Spec{Command: []string{"sh", "/custom/x.sh"}, CustomDir: custom, SnapshotsDir: snapshots})
			y.plan(on("j1", "cpu:0"))
			started := fact[event.Started](y, "j1", event.FactStarted)
			fact[event.Succeeded](y, "j1", event.FactSucceeded)
			if mounts == "never" && started.Mounts {
				t.Error("mounts were published although there are none")
			}
			where := map[bool]string{true: "/custom", false: custom}[started.Mounts]
			log, err := os.ReadFile(installation.Layout{DataDir: y.dir}.Output("j1"))
			y.must(err)
			if !strings.Contains(string(log), "in "+where+"\n") {
				t.Errorf("log %q, want it to work in %s", log, where)
			}
			// The folder has the capability's name; the job's id is a link to it.
			named, err := os.Readlink(filepath.Join(snapshots, "j1"))
			y.must(err)
			saved, err := filepath.Glob(filepath.Join(snapshots, named, "saved"))
			y.must(err)
			if len(saved) != 1 || len(named) != 64 {
				t.Errorf("saved %q, want one file in a folder with the capability's name", saved)
			}
			files, err := bus.Ask[rpc.FileRequest, rpc.FileAnswer](t.Context(), y.bus, rpc.FileSubject("n1"), rpc.FileRequest{Job: "j1"})
			y.must(err)
			if len(files.Files) != 1 || files.Files[0].Path != "checkpoints/saved" || files.Folders.Checkpoints != filepath.Join(snapshots, "j1") {
				t.Errorf("the executor lists %+v", files)
			}
		})
	}
}

func TestOneProcessPerDevice(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	spec := command("echo rank $RANK/$LOCAL_RANK of $WORLD_SIZE on $(grep Cpus_allowed_list /proc/self/status | cut -f2)")
	spec.Launch, spec.MinDevices = train.LaunchPerDevice, 2
	y.job("j1", spec)
	y.plan(on("j1", "cpu:1", "cpu:0"))
	fact[event.Succeeded](y, "j1", event.FactSucceeded)
	log, err := os.ReadFile(installation.Layout{DataDir: y.dir}.Output("j1"))
	y.must(err)
	first, last := cores(t)
	for _, line := range []string{fmt.Sprintf("[0] rank 0/0 of 2 on %d\n", last), fmt.Sprintf("[1] rank 1/1 of 2 on %d\n", first)} {
		if !strings.Contains(string(log), line) {
			t.Errorf("log %q lacks %q", log, line)
		}
	}
}

func TestCustomFolderThatIsGone(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.job("j1", train.Spec{Command: []string{"true"}, CustomDir: "/no/such/folder"})
	y.plan(on("j1", "cpu:0"))
	if got := fact[event.Failed](y, "j1", event.FactFailed); got.Reason.Message != "custom_dir /no/such/folder is not a folder that can be read here" {
		t.Errorf("failed %+v", got)
	}
}

func TestLogRequestsAreRefusedWithAReason(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.job("j1", command("true"))
	y.plan(on("j1", "cpu:0"))
	fact[event.Succeeded](y, "j1", event.FactSucceeded)
	for job, want := range map[train.JobID]string{"../../etc": "job id", "unknown": "no output here"} {
		_, err := bus.Ask[rpc.LogRequest, rpc.LogChunk](t.Context(), y.bus, rpc.LogSubject("n1"), rpc.LogRequest{Job: job})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("logs of %q: %v, want %q", job, err, want)
		}
	}
}
