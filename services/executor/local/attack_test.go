package local

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// bystander starts a process in a session of its own, as nothing that belongs to any attempt.
func bystander(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return cmd
}

// The record of an attempt that never ran here names the session of another process: it stays alive.
func TestARecordKillsNothing(t *testing.T) {
	b := newBench(t)
	victim := bystander(t)
	self, err := attempt.Kernel.Process(victim.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	a := train.Attempt{Job: "ghost", Number: 1, PID: self.PID, PIDStart: self.Start, BootID: attempt.BootID(), TokenHash: strings.Repeat("0", 64)}
	if left, err := b.Sweep(t.Context(), a); err != nil || left != 0 {
		t.Errorf("%d processes are taken for the ghost's, %v", left, err)
	}
	if !alive(victim.Process.Pid) {
		t.Error("a process was killed by its number in a record")
	}
}

// A changed launch file of a lost attempt can name neither commands nor processes of others.
func TestALaunchFileNamesNoCommands(t *testing.T) {
	b := newBench(t)
	dir := b.Attempt("j", 1)
	if err := installation.MakeFolder(dir); err != nil {
		t.Fatal(err)
	}
	victim := bystander(t)
	home := "HOME=" + os.Getenv("HOME")
	for name, text := range map[string]string{
		"of version 1": `{"version":1,"job":"j","attempt":1,"marker":"` + home + `","processes":[{}],"cleanup":[["sh","-c","touch ` + b.DataDir + `/ran"],["` + b.DataDir + `/x"]]}`,
		"of version 2": `{"version":2,"job":"j","attempt":1,"marker":"` + home + `","processes":[{}],"runtime":"` + b.DataDir + `/docker"}`,
		"of another":   `{"version":2,"job":"victim","attempt":1,"marker":"SWITCHYARD_JOB_ATTEMPT=victim/1/x","processes":[{}],"runtime":"docker"}`,
	} {
		for _, runtime := range []string{"x", "docker"} {
			if err := os.WriteFile(filepath.Join(b.DataDir, runtime), []byte("#!/bin/sh\ntouch "+b.DataDir+"/ran\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("PATH", os.Getenv("PATH"))
		if err := os.WriteFile(filepath.Join(dir, "launch.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if left, err := b.Sweep(t.Context(), train.Attempt{Job: "j", Number: 1}); err != nil || left != 0 {
			t.Errorf("%s: %d, %v", name, left, err)
		}
		if installation.Exists(filepath.Join(b.DataDir, "ran")) || !alive(victim.Process.Pid) {
			t.Errorf("%s: a command of the launch file ran, or killed a process", name)
		}
	}
	if err := os.Remove(filepath.Join(dir, "launch.json")); err != nil {
		t.Fatal(err)
	}
}

// A node's record names the container runtime and the folder of a daemon: none may be any path.
func TestANodeNamesNoPrograms(t *testing.T) {
	b := newBench(t)
	for number, change := range []func(*launch.Setting){
		func(s *launch.Setting) { s.Places[0].Node.ContainerRuntime = "/bin/sh" },
		func(s *launch.Setting) { s.Places[0].Node.ContainerRuntime = "../docker" },
		func(s *launch.Setting) { s.Places[0].Node.MPSDir = "/" },
	} {
		s := slots()
		s.Spec.Image, s.Attempt.Number = "image", number+1
		change(&s)
		b.begin(s)
		got, err := attempt.In(b.Layout, s.Job, number+1).Status()
		if err != nil || got.Phase != launch.Exited || got.Exit.Code != launch.CannotStart {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

// A job sees its own folders of the data folder and nothing of other jobs or the bus, and gains no rights.
func TestAJobSeesItsOwnFoldersAlone(t *testing.T) {
	b := newBench(t)
	b.Bounds.Sandbox = sandboxed(t, b)
	own, socket := b.Job("job-a"), filepath.Join(b.DataDir, installation.SocketFolder)
	for _, dir := range []string{filepath.Join(b.DataDir, "bus"), socket, b.Work("victim"), b.Attempt("victim", 1), b.Attempt("job-a", 3), filepath.Join(b.DataDir, "python")} {
		if err := installation.MakeFolder(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{b.Output("victim"), filepath.Join(b.DataDir, "context.json"), filepath.Join(b.DataDir, "bus", "keys"), filepath.Join(socket, "job.sock"), filepath.Join(b.Attempt("victim", 1), "token")} {
		if err := os.WriteFile(path, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := slots()
	s.Custom, s.Snapshots, s.Datasets, s.PythonPath = "", "", "", filepath.Join(b.DataDir, "python")
	s.Places[0].Node.JobAPISocket = filepath.Join(socket, "job.sock")
	s.Base = os.Environ()
	s.Spec.Env = nil
	s.Places[0].Devices = []train.Device{{ID: "cpu:0", Kind: train.KindCPU, Core: allowed(t)[0]}}
	s.Attempt.Devices = []train.DeviceID{"cpu:0"}
	s.Spec.CustomDir, s.Spec.SnapshotsDir, s.Spec.Command = "", "", sh(`cd `+b.DataDir+`; find . | sort
		for f in jobs/victim/output.log context.json bus/keys `+filepath.Join(b.Attempt("job-a", 3), "launch.json")+`; do cat $f 2>/dev/null && echo "read $f"; done
		touch here jobs/victim/here `+own+`/here 2>/dev/null && echo "wrote"
		umount `+b.DataDir+` 2>/dev/null && echo "uncovered"
		echo mine > `+b.Work("job-a")+`/mine; echo saved > /snapshots/saved; cat `+socket+`/job.sock; grep -w NoNewPrivs /proc/self/status`)
	b.begin(s)
	var got launch.Status
	b.until("the end", func() bool {
		var err error
		got, err = attempt.In(b.Layout, "job-a", 3).Status()
		return err == nil && got.Phase == launch.Exited
	})
	log := b.log("job-a")
	if got.Exit.Code != 0 || !strings.Contains(log, "NoNewPrivs:\t1") || !strings.Contains(log, "secretNoNewPrivs") {
		t.Errorf("exit %+v, log %s", got.Exit, log)
	}
	for _, word := range []string{"read ", "wrote", "uncovered", "victim", "context.json", "./bus", "job-a/capability", "launch.json"} {
		if strings.Contains(log, word) && (word != "uncovered" || os.Getuid() != 0) { // root may unmount
			t.Errorf("%q is in the log: %s", word, log)
		}
	}
	for _, path := range []string{filepath.Join(b.Work("job-a"), "mine"), filepath.Join(b.Snapshots("job-a"), "saved")} {
		if !installation.Exists(path) {
			t.Errorf("%s is not there: what the job writes has to stay", path)
		}
	}
}

// Folders around and in the data folder are refused when the job starts, also if its record never passed admission.
func TestTheDataFolderIsNoFolderOfAJob(t *testing.T) {
	b := newBench(t)
	real, err := filepath.EvalSymlinks(b.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	b.DataDir = filepath.Join(real, "data")
	if err := installation.MakeFolder(b.Attempt("victim", 1)); err != nil {
		t.Fatal(err)
	}
	for number, dir := range []string{real, b.DataDir, b.Job("victim"), b.Attempt("victim", 1), b.Job("job-a")} {
		s := slots()
		s.Attempt.Number, s.Spec.CustomDir = number+1, dir
		b.begin(s)
		got, err := attempt.In(b.Layout, "job-a", number+1).Status()
		if err != nil || got.Phase != launch.Exited || !strings.Contains(got.Exit.Message, "the data folder of Switchyard") {
			t.Errorf("%s: %+v, %v", dir, got, err)
		}
	}
}

// An executor whose jobs run as their submitters reads no file of a person: the supervisor of the job does.
func TestTheExecutorReadsNoFileOfAPerson(t *testing.T) {
	b := newBench(t)
	spec := train.Spec{SecretEnv: map[string]string{"KEY": "credential:wandb", "POD": "secret:a/b", "TOKEN": "file:/nonexistent/token"}}
	b.RunAsSubmitters("/nonexistent", t.TempDir())
	if values, err := b.Secrets(t.Context(), spec); err == nil || len(values) != 0 {
		t.Errorf("%v, %v", values, err) // of a pod, and no credential was loaded
	}
	delete(spec.SecretEnv, "KEY")
	delete(spec.SecretEnv, "POD")
	if values, err := b.Secrets(t.Context(), spec); err != nil || len(values) != 0 {
		t.Errorf("the executor reads the file of a person: %v, %v", values, err)
	}
}
