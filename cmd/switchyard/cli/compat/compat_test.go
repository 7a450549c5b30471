package compat

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestArgs(t *testing.T) {
	for _, tc := range []struct{ argv, want []string }{
		{nil, nil},
		{[]string{"switchyard", "ps", "-A"}, []string{"ps", "-A"}},
		{[]string{"/opt/bin/switchyard"}, []string{}},
		{[]string{"/usr/local/bin/run-scheduler", "--batch_size", "3", "x"}, []string{"compat", "run-scheduler", "--batch_size", "3", "x"}},
		{[]string{"scheduler-state"}, []string{"compat", "scheduler-state"}},
		{[]string{"./scheduler-cancel-job", "a"}, []string{"compat", "scheduler-cancel-job", "a"}},
		{[]string{"scheduler-get-logs", "a"}, []string{"compat", "scheduler-get-logs", "a"}},
		{[]string{"run-schedulers", "a"}, []string{"a"}},
	} {
		if diff := cmp.Diff(tc.want, Args(tc.argv)); diff != "" {
			t.Errorf("%q: %s", tc.argv, diff)
		}
	}
}

// admit plays admission: it takes every submission up and hands it out.
func admit(t *testing.T, b *bus.Bus) <-chan train.Spec {
	t.Helper()
	specs := make(chan train.Spec, 10)
	ctx, stop := context.WithCancel(context.Background())
	var playing conc.WaitGroup
	playing.Go(func() {
		_ = b.Follow(ctx, event.StreamJobs, []string{"yard.job.*." + event.FactSubmitted + ".v1"}, 1, func(m bus.Message) {
			spec, reasons := event.DecodeSubmission(m.Data)
			if len(reasons) > 0 {
				t.Errorf("%v", reasons)
			}
			specs <- spec
			kv, err := bus.OpenKV(ctx, b, contract.Jobs)
			if err == nil {
				spec.User = installation.CurrentUser()
				_, err = kv.Swap(ctx, m.Parsed.ID, train.Job{ID: train.JobID(m.Parsed.ID), Spec: spec, State: train.StateQueued, SubmittedAt: m.Stored, Message: "waits"}, 0)
			}
			if err != nil {
				t.Error(err)
			}
		})
	})
	t.Cleanup(func() {
		stop()
		playing.Wait()
	})
	return specs
}

func TestRunScheduler(t *testing.T) {
	s := clitest.New(t, Command)
	specs := admit(t, s.Bus)
	required := []string{"--batch_size", "32", "--training_set_size", "50000", "--max_epochs", "10"}
	code, out, stderr := s.Run(append([]string{"compat", "run-scheduler", "first"}, required...)...)
	if spec := <-specs; code != exit.OK || spec.MaxDevices != 0 || !strings.Contains(stderr, "no node is known yet") || !strings.HasPrefix(out, "first-") {
		t.Errorf("exit %d, %q, %q, %+v", code, out, stderr, spec)
	}
	s.Fill(t)
	t.Run("every flag", func(t *testing.T) {
		code, out, stderr := s.Run(append([]string{
			"compat", "run-scheduler", "--image_name", "torch:2", "--script_path", "/custom/test1.py", "--custom_dir", "/home/me/tests", "--snapshots_dir", "/home/me/snaps",
			"--is_single_gpu", "False", "--disable_gpu_sharing", "true", "--estimated_memory", "4096", "--port_mapping", "30000:6006,30001:80", "--est_nhours", "2.5", "My Net",
		}, required...)...)
		want := train.Spec{
			Name: "My Net", Image: "torch:2", ScriptPath: "/custom/test1.py", CustomDir: "/home/me/tests", SnapshotsDir: "/home/me/snaps", BatchSize: 32, TrainingSetSize: 50000,
			MaxEpochs: 10, DisableSharing: true, EstimatedMemoryMiB: 4096, EstimatedHours: 2.5, MaxDevices: 4, Strategy: train.StrategyAllReduce, BatchPerDevice: true,
			Ports: []train.PortMapping{{NodePort: 30000, ContainerPort: 6006}, {NodePort: 30001, ContainerPort: 80}},
		}
		if diff := cmp.Diff(want, <-specs); code != exit.OK || diff != "" {
			t.Errorf("exit %d, %q\n%s", code, stderr, diff)
		}
		id := strings.TrimSuffix(out, "\n")
		if _, err := train.ParseJobID(id); err != nil || !strings.HasPrefix(id, "my-net-") {
			t.Errorf("prints %q", out)
		}
	})
	t.Run("single GPU", func(t *testing.T) {
		home := t.TempDir()
		t.Setenv("HOME", home)
		if err := os.Mkdir(filepath.Join(home, "datasets"), 0o700); err != nil {
			t.Fatal(err)
		}
		code, _, stderr := s.Run(append([]string{"compat", "run-scheduler", "--is_single_gpu=True", "--disable_gpu_sharing", "False", "--estimated_memory", "4096", "--custom_dir", "rel", "x"}, required...)...)
		here, err := filepath.Abs("rel")
		if spec := <-specs; code != exit.OK || err != nil || !spec.SingleDevice || spec.MaxDevices != 0 || spec.Strategy != "" || spec.CustomDir != here ||
			!spec.AllowSharing || spec.DatasetsDir != filepath.Join(home, "datasets") {
			t.Errorf("exit %d, %q, %+v, %v", code, stderr, spec, err)
		}
	})
	for want, args := range map[string][]string{
		"are required: --training_set_size, --max_epochs": {"x", "--batch_size", "3"},
		`--is_single_gpu "maybe": want True or False`:     append([]string{"x", "--is_single_gpu", "maybe"}, required...),
		`--port_mapping: "80": want NODE:CONTAINER`:       append([]string{"x", "--port_mapping", "80"}, required...),
		"accepts 1 arg(s), received 0":                    required,
		"unknown flag: --batch-size":                      {"x", "--batch-size", "3"},
	} {
		if code, _, stderr := s.Run(append([]string{"compat", "run-scheduler"}, args...)...); code != exit.Usage || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit %d, %q", args, code, stderr)
		}
	}
}

func TestSchedulerState(t *testing.T) {
	s := clitest.New(t, Command)
	s.Fill(t)
	if err := compatState(t.Context(), s.Console, s.Yard(clitest.Noon), stateOptions{allUsers: true, newest: 4}, clitest.Noon); err != nil {
		t.Fatal(err)
	}
	out, stderr := s.Printed()
	clitest.Golden(t, "state.txt", out)
	if !strings.Contains(stderr, "1 older job not shown (--nlast 5 shows all)") {
		t.Errorf("%q", stderr)
	}
	if err := compatState(t.Context(), s.Console, s.Yard(clitest.Noon), stateOptions{allUsers: true, newest: 20, extended: true}, clitest.Noon); err != nil {
		t.Fatal(err)
	}
	out, _ = s.Printed()
	clitest.Golden(t, "state-extended.txt", out)
	code, out, _ := s.Run("compat", "scheduler-state", "--all_users", "--nlast", "2", "-o", "json")
	if jobs := clitest.Parse[[]train.Job](t, out); code != exit.OK || len(jobs) != 2 || jobs[0].ID != "bert-91bc" {
		t.Errorf("exit %d, %s", code, out)
	}
}

func TestSchedulerCancelAndLogs(t *testing.T) {
	s := clitest.New(t, Command)
	s.Fill(t)
	clitest.Obey(t, s.Bus, train.StateCancelled)
	(&clitest.LogServer{Output: []byte("a\nb\n"), Piece: 3, Ended: true}).Serve(t, s.Bus, "gpu1")
	if code, out, stderr := s.Run("compat", "scheduler-cancel-job", "resnet-4f2a"); code != exit.OK || out != "job resnet-4f2a cancelled\n" {
		t.Errorf("exit %d, %q, %q", code, out, stderr)
	}
	if code, out, stderr := s.Run("compat", "scheduler-get-logs", "resnet-4f2a"); code != exit.OK || out != "a\nb\n" {
		t.Errorf("exit %d, %q, %q", code, out, stderr)
	}
}

// The wrappers pass every argument on as it is, wherever the program lies.
func TestCompatInstall(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b")
	binary := filepath.Join(t.TempDir(), "it's here", "switchyard")
	clitest.Write(t, binary, "#!/bin/sh\nprintf '<%s>' \"$@\"\n")
	if err := os.Chmod(binary, 0o755); err != nil {
		t.Fatal(err)
	}
	written, err := installCompat(binary, dir)
	if err != nil || len(written) != 4 {
		t.Fatal(written, err)
	}
	for _, path := range written {
		out, err := exec.Command(path, "x y", "", "$HOME").CombinedOutput()
		if want := "<compat><" + filepath.Base(path) + "><x y><><$HOME>"; err != nil || string(out) != want {
			t.Errorf("%s: %q, %v; want %q", path, out, err, want)
		}
	}
	if _, err := installCompat(binary, dir); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 4 {
		t.Errorf("%v, %v", left, err)
	}
	foreign := filepath.Join(dir, "scheduler-state")
	clitest.Write(t, foreign, "#!/bin/sh\n# somebody's own\n")
	if _, err := installCompat(binary, dir); err == nil || !strings.Contains(err.Error(), "was not written by this command") {
		t.Errorf("overwrites a foreign file: %v", err)
	}
}
