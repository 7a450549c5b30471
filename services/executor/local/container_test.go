package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// fakeDocker runs the command of an image on the machine, with only the variables that were handed in, and keeps a
// list of what is running.
const fakeDocker = `#!/bin/sh
if [ "$1" = rm ]; then
	echo "rm $3" >> "$STATE/calls"
	[ -e "$STATE/$3" ] && kill -KILL -- $(cat "$STATE/$3")
	rm -f "$STATE/$3"
	exit 0
fi
shift
while [ "${1#-}" != "$1" ]; do
	case "$1" in
	--rm|--init) shift;;
	--name) name=$2; shift 2;;
	--env-file) . "$2"; export JOB_UUID; shift 2;;
	--cap-drop=*) shift;;
	*) shift 2;;
	esac
done
shift
echo "run $name" >> "$STATE/calls"
# The engine runs containers, not its client: they survive the client.
setsid sh -c 'echo $$ > "$0"; shift 0; exec "$@"' "$STATE/$name" "$@" &
trap 'kill -TERM $!' TERM
wait $!; status=$?
rm -f "$STATE/$name"
exit $status
`

func TestContainersByAFakeEngine(t *testing.T) {
	b := newBench(t)
	bin, state := filepath.Join(b.DataDir, "bin"), filepath.Join(b.DataDir, "state")
	for _, dir := range []string{bin, state} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(bin, "docker"), []byte(strings.ReplaceAll(fakeDocker, "$STATE", state)), 0o700); err != nil {
		t.Fatal(err)
	}
	// The supervisor itself runs the command that removes a container.
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	start := func(job train.JobID, command ...string) {
		s := slots()
		s.Job, s.Attempt.Job, s.Attempt.Number = job, job, 1
		s.Spec.Image, s.Spec.Command, s.Spec.Env = "image", command, nil
		s.Base = os.Environ()
		b.begin(s)
	}
	start("ok", "sh", "-c", "echo uuid $JOB_UUID; exit 3")
	if got := b.phase("ok", launch.Exited).Exit; got.Code != 3 || !strings.Contains(b.log("ok"), "uuid capability\n") {
		t.Errorf("exit %+v, log %q", got, b.log("ok"))
	}
	// A container that ignores SIGTERM is removed by its name.
	start("stubborn", "sh", "-c", "trap '' TERM; while :; do sleep 0.05; done")
	b.phase("stubborn", launch.Running)
	pid := b.pidIn("state/switchyard-stubborn-1")
	if err := b.stop("stubborn", time.Now()); err != nil {
		t.Fatal(err)
	}
	if got := b.phase("stubborn", launch.Exited).Exit; !got.Forced {
		t.Errorf("exit %+v, want forced", got)
	}
	if alive(pid) {
		t.Error("the container is alive")
	}
	calls, err := os.ReadFile(filepath.Join(state, "calls"))
	if err != nil || !strings.Contains(string(calls), "rm switchyard-stubborn-1\n") {
		t.Errorf("calls %q, %v", calls, err)
	}
}
