package local

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// onTwo starts a job on two CPU slots and returns its log once it has ended.
func (b *bench) onTwo(spec train.Spec) string {
	b.t.Helper()
	a := train.Attempt{Job: "j", Number: 1, TokenHash: b.DataDir, Devices: []train.DeviceID{"cpu:0", "cpu:1"}}
	s := launch.Setting{
		Job: a.Job, Attempt: a, Spec: spec, Capability: "c", Token: "t", Base: os.Environ(),
		Places: []launch.Place{{Node: train.Node{ID: "n"}, Devices: []train.Device{{ID: "cpu:0", Kind: train.KindCPU}, {ID: "cpu:1", Kind: train.KindCPU}}}},
	}
	b.begin(s)
	if e := b.phase(a.Job, launch.Exited).Exit; e.Code != 0 || e.Message != "" {
		b.t.Fatalf("exit %+v:\n%s", e, b.log(a.Job))
	}
	return b.log(a.Job)
}

// horovodInit does twice what hvd.init() and hvd.shutdown() of Horovod's Gloo controller do with the rendezvous: as
// horovod/common/gloo does, it meets the others in three scopes and deletes its rank from each. If a scope kept the
// addresses of the first meeting, the second would find processes that are gone.
const horovodInit = `
import os, time, urllib.error, urllib.request
env = {k[8:]: v for k, v in os.environ.items() if k.startswith("HOROVOD_")}
assert env["CONTROLLER"] == env["CPU_OPERATIONS"] == "gloo", env
server = "http://%s:%s" % (env["GLOO_RENDEZVOUS_ADDR"], env["GLOO_RENDEZVOUS_PORT"])

def ask(method, scope, key, body=None):
    try:
        return urllib.request.urlopen(urllib.request.Request("%s/%s/%s" % (server, scope, key), data=body, method=method), timeout=60).read()
    except urllib.error.HTTPError as e:
        if e.code != 404:
            raise
        return None

def meet(scope, rank, size, round):
    ask("PUT", scope, rank, b"%d by %d" % (round, os.getpid()))
    met = set()
    for other in range(size):
        value = None
        while value is None:
            value = ask("GET", scope, other)
        assert value.startswith(b"%d " % round), (scope, value)
        met.add(value)
    assert len(met) == size, met
    barrier = "%s-%d" % (scope, round)   # all have met before anybody leaves, as Gloo's connections see to it
    ask("PUT", barrier, rank, b"met")
    for other in range(size):
        while ask("GET", barrier, other) is None:
            pass
    ask("DELETE", scope, rank)
    while round == 1 and ask("GET", scope, rank) is not None:   # emptied by the last of them
        pass
    ask("PUT", barrier, "left-%s" % rank, b"left")
    for other in range(size):
        while ask("GET", barrier, "left-%d" % other) is None:
            pass

for round in 1, 2:
    meet("global", env["RANK"], int(env["SIZE"]), round)
    meet("local_" + env["HOSTNAME"], env["LOCAL_RANK"], int(env["LOCAL_SIZE"]), round)
    meet("cross_" + env["LOCAL_RANK"], env["CROSS_RANK"], int(env["CROSS_SIZE"]), round)
print("rank", env["RANK"], "of", env["SIZE"], "has met the others twice")
`

func TestHorovodsProcessesMeet(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 here")
	}
	log := newBench(t).onTwo(train.Spec{Command: []string{python, "-c", horovodInit}, Launch: train.LaunchPerDevice})
	for _, want := range []string{"rank 0 of 2 has met the others twice", "rank 1 of 2 has met the others twice"} {
		if !strings.Contains(log, want) {
			t.Errorf("log lacks %q:\n%s", want, log)
		}
	}
}

// TestMpirunStartsAProcessPerDevice: without options, mpirun fills the job's devices; it may ask for another number.
func TestMpirunStartsAProcessPerDevice(t *testing.T) {
	mpirun, err := exec.LookPath("mpirun")
	if err != nil {
		t.Skip("there is no mpirun here (Debian: apt-get install openmpi-bin)")
	}
	asRoot := map[string]string{"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
	rank := []string{"sh", "-c", `echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE"`}
	for options, size := range map[string]int{"": 2, "-np 3": 3} {
		command := append(append([]string{mpirun}, strings.Fields(options)...), rank...)
		log := newBench(t).onTwo(train.Spec{Command: command, Env: asRoot})
		for r := range size {
			if want := fmt.Sprintf("rank %d of %d", r, size); !strings.Contains(log, want) {
				t.Errorf("mpirun %s: the log lacks %q:\n%s", options, want, log)
			}
		}
	}
}
