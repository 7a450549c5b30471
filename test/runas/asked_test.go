package runas

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// continued lets ann go on from what an earlier job of hers has saved, and bob try the same.
func continued(l *lab) {
	flags := []string{"--checkpoint", "ck*", "--progress", `epoch (?P<epoch>\d+)`}
	l.submit(l.ann, "saves", flags, "sh", "-c", `echo hers > ck1; echo "epoch 1"; sleep 0.5`)
	if job, out := l.ended(l.ann, "saves"); job.State != train.StateSucceeded || !job.Saved() {
		l.t.Fatalf("%s, saved %t: %s\n%s", job.State, job.Saved(), job.Message, out)
	}
	l.submit(l.ann, "goes-on", append(flags, "--continue", "saves"), "sh", "-c", `cat ck1; stat -c %u ck1; echo other > ck1`)
	job, out := l.ended(l.ann, "goes-on")
	if job.State != train.StateSucceeded {
		l.t.Errorf("%s: %s\n%s", job.State, job.Message, out)
	}
	contains(l.t, "a job that goes on", out, fmt.Sprintf("hers\n%d\n", l.ann.uid))
	l.run(l.bob, "switchyard", append(append([]string{"submit", "--id", "takes-over", "--name", "x"}, append(flags, "--continue", "saves")...), "--", "cat", "ck1")...)
	if job := l.job("takes-over"); job.State != train.StateRejected || !strings.Contains(job.Message, "belongs to") {
		l.t.Errorf("bob's job that continues ann's is %s: %s", job.State, job.Message)
	}
}

// narrowed gives a running job of ann's one processor of its two, as an experiment does with its trials.
func narrowed(l *lab) {
	settings, err := bus.OpenKV(l.ctx, l.connect("experiments"), contract.Settings)
	l.must(err)
	l.submit(l.ann, "narrowed", []string{"--devices", "2"}, "sh", "-c", `until grep -E 'Cpus_allowed_list:\s+[0-9]+$' /proc/self/status; do sleep 0.05; done; id -u`)
	l.runs("narrowed")
	_, err = settings.Modify(l.ctx, "narrowed", func(s *train.Setting) (bool, error) {
		*s = train.Setting{Job: "narrowed", Experiment: "e", Generation: 1, Values: map[string]float64{"cores": 1}}
		return true, nil
	})
	l.must(err)
	job, out := l.ended(l.ann, "narrowed")
	if job.State != train.StateSucceeded || job.Attempt != 1 {
		l.t.Errorf("%s in attempt %d: %s", job.State, job.Attempt, job.Message)
	}
	contains(l.t, "a job moved to one processor", out, "Cpus_allowed_list:", strconv.Itoa(l.ann.uid)+"\n")
}

// trials are jobs of who asked for the experiment.
func trials(l *lab) {
	trainer := filepath.Join(l.programs, "gotrainer")
	file := filepath.Join(l.ann.home, "search.yaml")
	l.must(os.WriteFile(file, []byte(`
name: search
mode: pipetune
job:
  name: search
  command: [sh, -c, 'id -u; echo "lr ${lr} cores $CORES"; exec `+trainer+` -hidden 64 -lr ${lr}']
  env: {CORES: "${cores}"}
  work_dir: `+l.ann.home+`
  batch_size: 32
  training_set_size: 6000
  max_epochs: 24
  min_devices: 2
  max_devices: 2
space: {lr: [0.01, 0.1]}
objective: accuracy
search: {algorithm: random, trials: 2}
system: {cores: [2, 1]}
`), 0o644))
	if out := l.run(l.ann, "switchyard", "tune", "run", file, "--id", "search"); !strings.Contains(out, "search") {
		l.t.Fatalf("tune run: %s", out)
	}
	for _, id := range []string{"search-t0", "search-t1"} {
		l.until("the submission of "+id, func() bool { return l.job(id).ID != "" })
		job, out := l.ended(l.ann, id)
		if job.State != train.StateSucceeded || job.Spec.UID != l.ann.uid || job.Spec.User != l.ann.name || job.Attempt != 1 {
			l.t.Fatalf("%s is %s of %s (%d) in attempt %d: %s\n%s", id, job.State, job.Spec.User, job.Spec.UID, job.Attempt, job.Message, out)
		}
		contains(l.t, id, out, strconv.Itoa(l.ann.uid)+"\n", "lr 0.", " cores ")
	}
	// A person without a key of the bus sees and stops his own jobs through the socket, and nothing else.
	contains(l.t, "describe", l.run(l.ann, "switchyard", "tune", "describe", "search"), "experiment search: ", "random of at most 2 trials", "lr=0.")
	contains(l.t, "results", l.run(l.ann, "switchyard", "tune", "results", "search"), "accuracy", "lr=0.")
	contains(l.t, "ps", l.run(l.bob, "switchyard", "tune", "ps"), "search")
	for _, args := range [][]string{{"describe", "search"}, {"results", "search"}, {"stop", "search"}} {
		contains(l.t, "bob's "+args[0], l.run(l.bob, "switchyard", append([]string{"tune"}, args...)...), "is "+l.ann.name+"'s")
	}
	l.run(l.ann, "switchyard", "tune", "run", file, "--id", "endless")
	contains(l.t, "bob's stop", l.run(l.bob, "switchyard", "tune", "stop", "endless"), "is "+l.ann.name+"'s")
	contains(l.t, "stop", l.run(l.ann, "switchyard", "tune", "stop", "endless", "--reason", "enough"), "experiment endless stopped")
	// What the experiments service says in a person's name is not believed.
	forged := train.Spec{Name: "search-7", Command: []string{"id"}}
	l.publishAs("experiments", "search-t7", forged)
	job, said := l.ended(l.svc, "search-t7")
	if job.State != train.StateFailed || job.Reason != "UnknownSubmitter" || job.Spec.UID != 0 {
		l.t.Errorf("a forged trial is %s of %d, %s: %s", job.State, job.Spec.UID, job.Reason, said)
	}
}

// devices puts a file beside those of the machine's GPUs, as the driver makes them for everybody, and lets jobs look.
func devices(l *lab) {
	const node = "/dev/nvidia94"
	const null = 1<<8 | 3
	if err := unix.Mknod(node, unix.S_IFCHR|0o666, null); err != nil {
		l.t.Skipf("no device files can be made here: %v", err)
	}
	l.t.Cleanup(func() { _ = os.Remove(node) })
	l.must(os.Chmod(node, 0o666))
	l.submit(l.ann, "sees", nil, "sh", "-c", "echo free > "+node+"; echo x > /dev/null && echo y > /dev/shm/mine; ls /dev /dev/shm; head -c 4 /dev/urandom | wc -c; mknod /dev/shm/new c 1 3; echo z > /dev/new")
	job, out := l.ended(l.ann, "sees")
	if job.State != train.StateFailed || strings.Contains(out, "nvidia94\n") {
		l.t.Errorf("%s: %s\n%s", job.State, job.Message, out)
	}
	contains(l.t, "a job that looks at devices", out, "null\n", "\nmine\n", "\n4\n", "mknod", "Read-only file system")
	if _, err := os.Stat("/dev/shm/mine"); err == nil {
		l.t.Error("a job shares memory with everybody")
	}
}
