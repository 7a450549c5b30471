package local

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
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
	self, err := kernel.Process(victim.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	a := train.Attempt{Job: "ghost", Number: 1, PID: self.PID, PIDStart: self.Start, BootID: bootID(), TokenHash: strings.Repeat("0", 64)}
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
	if err := makeFolder(dir); err != nil {
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
		if err := os.WriteFile(filepath.Join(dir, launchName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if left, err := b.Sweep(t.Context(), train.Attempt{Job: "j", Number: 1}); err != nil || left != 0 {
			t.Errorf("%s: %d, %v", name, left, err)
		}
		if exists(filepath.Join(b.DataDir, "ran")) || !alive(victim.Process.Pid) {
			t.Errorf("%s: a command of the launch file ran, or killed a process", name)
		}
	}
	if err := os.Remove(filepath.Join(dir, launchName)); err != nil {
		t.Fatal(err)
	}
}

// A node's record names the container runtime, the agent's socket and the folder of a daemon: none may be any path.
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
		if err := b.Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		got, err := status(b.Attempt(s.Job, number+1))
		if err != nil || got.Phase != launch.Exited || got.Exit.Code != launch.CannotStart {
			t.Errorf("%+v, %v", got, err)
		}
	}
	for _, socket := range []string{"/", "/etc/passwd", "job-api/job.sock", "/var/run/docker.sock"} {
		if dir := socketFolder(socket); dir != "" {
			t.Errorf("%s shows %s", socket, dir)
		}
	}
}

// What a user sets reaches the program in the container, and neither the client of the container runtime nor its
// arguments.
func TestTheClientOfContainersGetsNothingOfTheUser(t *testing.T) {
	b := newBench(t)
	s := slots()
	s.Spec.Image = "image"
	s.Spec.Env = map[string]string{"LD_PRELOAD": "/tmp/evil.so", "DOCKER_HOST": "tcp://127.0.0.1:2375", "PATH": "/tmp/evil", "HTTPS_PROXY": "http://evil", "SECRET": "xyzzy"}
	s.Base = []string{"PATH=/usr/bin", "HOME=/home/me", "DOCKER_HOST=unix:///run/docker.sock", "AWS_SECRET_ACCESS_KEY=hidden", "LD_LIBRARY_PATH=/opt"}
	if err := makeFolder(b.Attempt(s.Job, 3)); err != nil {
		t.Fatal(err)
	}
	if err := b.bounds.writeEnvironments(b.Layout, s); err != nil {
		t.Fatal(err)
	}
	p := b.bounds.container(s, b.Layout, 0)
	if got := fmt.Sprint(p.Env); got != "[DOCKER_HOST=unix:///run/docker.sock HOME=/home/me PATH=/usr/bin]" {
		t.Errorf("the client gets %s", got)
	}
	if args := strings.Join(p.Args, " "); strings.Contains(args, "evil") || strings.Contains(args, "xyzzy") {
		t.Errorf("arguments %s", args)
	}
	path := environmentFile(b.Layout, s, 0)
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), "\nLD_PRELOAD=/tmp/evil.so\n") || !strings.Contains(string(text), "\nSECRET=xyzzy\n") {
		t.Errorf("environment %s, %v", text, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: others can read it", info, err)
	}
	s.Spec.Env = map[string]string{"A": "1\nJOB_UUID=forged"}
	if err := b.bounds.writeEnvironments(b.Layout, s); !errors.Is(err, errLines) {
		t.Errorf("a variable of two lines: %v", err)
	}
}

// A job sees its own folders of the data folder and nothing of other jobs or the bus, and gains no rights.
func TestAJobSeesItsOwnFoldersAlone(t *testing.T) {
	b := newBench(t)
	b.bounds.Sandbox = sandboxed(t, b)
	own, socket := b.Job("job-a"), filepath.Join(b.DataDir, installation.SocketFolder)
	for _, dir := range []string{filepath.Join(b.DataDir, "bus"), socket, b.Work("victim"), b.Attempt("victim", 1), b.Attempt("job-a", 3), filepath.Join(b.DataDir, "python")} {
		if err := makeFolder(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{b.Output("victim"), filepath.Join(b.DataDir, "context.json"), filepath.Join(b.DataDir, "bus", "keys"), filepath.Join(socket, "job.sock"), filepath.Join(b.Attempt("victim", 1), tokenName)} {
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
		for f in jobs/victim/output.log context.json bus/keys `+filepath.Join(b.Attempt("job-a", 3), launchName)+`; do cat $f 2>/dev/null && echo "read $f"; done
		touch here jobs/victim/here `+own+`/here 2>/dev/null && echo "wrote"
		umount `+b.DataDir+` 2>/dev/null && echo "uncovered"
		echo mine > `+b.Work("job-a")+`/mine; echo saved > /snapshots/saved; cat `+socket+`/job.sock; grep -w NoNewPrivs /proc/self/status`)
	if err := b.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	var got launch.Status
	b.until("the end", func() bool {
		var err error
		got, err = status(b.Attempt("job-a", 3))
		return err == nil && got.Phase == launch.Exited
	})
	log := b.log("job-a")
	if got.Exit.Code != 0 || !strings.Contains(log, "NoNewPrivs:\t1") || !strings.Contains(log, "secretNoNewPrivs") {
		t.Errorf("exit %+v, log %s", got.Exit, log)
	}
	for _, word := range []string{"read ", "wrote", "uncovered", "victim", "context.json", "./bus", "job-a/" + capabilityName, launchName} {
		if strings.Contains(log, word) && (word != "uncovered" || os.Getuid() != 0) { // root may unmount
			t.Errorf("%q is in the log: %s", word, log)
		}
	}
	for _, path := range []string{filepath.Join(b.Work("job-a"), "mine"), filepath.Join(b.Snapshots("job-a"), "saved")} {
		if !exists(path) {
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
	if err := makeFolder(b.Attempt("victim", 1)); err != nil {
		t.Fatal(err)
	}
	for number, dir := range []string{real, b.DataDir, b.Job("victim"), b.Attempt("victim", 1), b.Job("job-a")} {
		s := slots()
		s.Attempt.Number, s.Spec.CustomDir = number+1, dir
		if err := errors.Join(makeFolder(b.Job("job-a")), b.Start(t.Context(), s)); err != nil {
			t.Fatal(err)
		}
		got, err := status(b.Attempt("job-a", number+1))
		if err != nil || got.Phase != launch.Exited || !strings.Contains(got.Exit.Message, "the data folder of Switchyard") {
			t.Errorf("%s: %+v, %v", dir, got, err)
		}
	}
}

// A job gets the secrets of its user, and those of nobody else, whatever the executor can read.
func TestSecretsAreTheirUsersOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root, who alone can make files of other users")
	}
	const ann, bob = 64001, 64002
	b := newBench(t)
	dir := t.TempDir()
	place := func(folder string, owner int, mode os.FileMode, file string, fileOwner int, fileMode os.FileMode) string {
		t.Helper()
		folder = filepath.Join(dir, folder)
		path := filepath.Join(folder, file)
		err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(path, []byte("xyzzy\n"), 0o600), os.Chown(path, fileOwner, fileOwner), os.Chmod(path, fileMode),
			os.Chown(folder, owner, owner), os.Chmod(folder, mode))
		if err != nil {
			t.Fatal(err)
		}
		return "file:" + path
	}
	mine := place("ann", ann, 0o755, "token", ann, 0o600)
	link, pipe, inner := filepath.Join(dir, "ann", "link"), filepath.Join(dir, "ann", "pipe"), b.DataDir+"/keys/operator.nk"
	err := errors.Join(os.MkdirAll(filepath.Dir(inner), 0o700), os.WriteFile(inner, []byte("SU"), 0o600), os.Symlink(filepath.Join(dir, "ann", "token"), link), unix.Mkfifo(pipe, 0o600),
		os.Chown(pipe, ann, ann), os.Chown(inner, ann, ann), os.Chown(filepath.Dir(inner), ann, ann))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("CREDENTIALS_DIRECTORY", filepath.Dir(strings.TrimPrefix(place("loaded", 0, 0o700, userOf(ann)+".wandb", 0, 0o400), "file:")))
	get := func(uid int, source string) (string, error) {
		values, err := b.Secrets(t.Context(), train.Spec{User: userOf(uid), SecretEnv: map[string]string{"TOKEN": source}})
		return values["TOKEN"], err
	}
	for _, source := range []string{mine, "credential:wandb"} {
		if value, err := get(ann, source); value != "xyzzy" || err != nil {
			t.Errorf("%s: %q, %v", source, value, err)
		}
		if value, err := get(bob, source); !errors.Is(err, launch.ErrSecret) {
			t.Errorf("%s given to another user: %q, %v", source, value, err)
		}
	}
	for what, source := range map[string]string{
		"a file that others can read":              place("ann", ann, 0o755, "open", ann, 0o640),
		"a file of another user":                   place("ann", ann, 0o755, "bobs", bob, 0o600),
		"a folder that others can write to":        place("shared", ann, 0o775, "token", ann, 0o600),
		"a folder of another user":                 place("bob", bob, 0o755, "token", ann, 0o600),
		"a link":                                   "file:" + link,
		"a pipe":                                   "file:" + pipe,
		"a key of the data folder":                 "file:" + inner,
		"a file that is not there":                 mine + "s",
		"a credential that nobody has loaded":      "credential:other",
		"a Secret where there is no Kubernetes":    "secret:a/b",
		"a path that leads elsewhere":              mine + "/../token",
		"a value that is no path to anything here": "token",
	} {
		if value, err := get(ann, source); !errors.Is(err, launch.ErrSecret) || strings.Contains(err.Error(), "xyzzy") {
			t.Errorf("%s: %q, %v", what, value, err)
		}
	}
	if _, err := b.Secrets(t.Context(), train.Spec{User: "nobody-of-this-name", SecretEnv: map[string]string{"TOKEN": mine}}); !errors.Is(err, launch.ErrSecret) {
		t.Errorf("a user whom the machine does not know: %v", err)
	}
	s := slots()
	s.Secrets = map[string]string{"TOKEN": "xyzzy", "JOB_UUID": "forged"}
	if env := environment(s, 0); !slices.Contains(env, "TOKEN=xyzzy") || slices.Contains(env, "JOB_UUID=forged") {
		t.Errorf("the job gets %s", env)
	}
}

// An executor that was taken over gives a person's job no variable that its signed spec does not take from a
// credential.
func TestAnExecutorGivesAPersonsJobCredentialsAlone(t *testing.T) {
	b := newBench(t)
	said := map[string]string{"LD_PRELOAD": "/tmp/x.so", "PLAIN": "forged", "KEY": "of systemd", "POD": "forged"}
	spec := train.Spec{Env: map[string]string{"PLAIN": "x"}, SecretEnv: map[string]string{"KEY": "credential:wandb", "POD": "secret:a/b"}}
	if values, err := b.ownSecrets(spec, said); err != nil || len(values) != 1 || values["KEY"] != "of systemd" {
		t.Errorf("%v, %v", values, err)
	}
	said["TOKEN"], spec.SecretEnv["TOKEN"] = "forged", "file:/nonexistent/token"
	if values, err := b.ownSecrets(spec, said); !errors.Is(err, launch.ErrSecret) {
		t.Errorf("a file's value is the executor's: %v, %v", values, err)
	}
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

func userOf(uid int) string { return fmt.Sprintf("uid%d", uid) }
