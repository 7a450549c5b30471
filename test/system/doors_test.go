package system

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
)

// The service web answers commands, and the bus does while it is away: with the same words and the same exit codes.
func TestEitherDoorSaysTheSame(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	web := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return installation.DialUnix(ctx, filepath.Join(c.data, api.SocketName))
	}}}
	c.eventually("the service web answers", func() error {
		answer, err := web.Get("http://switchyard" + api.Prefix)
		if err == nil {
			err = answer.Body.Close()
		}
		return err
	})
	c.awaitNode()
	// Without its context a command does not know where the service is.
	said := map[string]string{}
	for door, place := range map[string]string{"web": "context.json", "bus": "none.json"} {
		said[door] = c.verbs("by-"+door, func(args ...string) (int, string) {
			cmd := exec.CommandContext(c.ctx, filepath.Join(binaries, "switchyard"), args...)
			cmd.Dir = c.dir
			cmd.Env = append(c.environ(), "SWITCHYARD_NATS="+c.url(), "SWITCHYARD_CONTEXT="+filepath.Join(c.dir, place))
			out, _ := cmd.CombinedOutput()
			return cmd.ProcessState.ExitCode(), string(out)
		})
	}
	if diff := cmp.Diff(said["bus"], said["web"]); diff != "" {
		t.Errorf("by the bus and by the service (-bus +web):\n%s", diff)
	}
	for _, want := range []string{"exit 0", "exit 1", "exit 3", "exit 101", "exit 102", "exit 103", "TooFewDevices", "held by", "hello\n"} {
		if !strings.Contains(said["web"], want) {
			t.Errorf("no %q in\n%s", want, said["web"])
		}
	}
}

// verbs runs the commands about jobs, and returns what they say but for the id and for times.
func (c *cluster) verbs(id string, command func(args ...string) (int, string)) string {
	c.t.Helper()
	// A job that is resumed or put back may start before the command reads its record.
	passing := regexp.MustCompile(`paused: [^\n]*paused by \S+|\b(queued|starting|profiling|running)\b|resumed by [^\n]*begins again|put at the end of the queue by \S+|starts on [^\n]*|\d+(\.\d+)? ?(ms|s)\b|\d+-\d+-\d+T[\d:]+Z|waiting for job .*\n|cpu:\d`)
	// Once the meter has seen the job, and if it ran long enough.
	metered := regexp.MustCompile(`(?m)^  energy .*\n|: \d+(\.\d+)? ?(ms|s) are lost`)
	var all strings.Builder
	do := func(line string) {
		code, out := command(strings.Fields(strings.ReplaceAll(line, "ID", id))...)
		out = metered.ReplaceAllString(strings.ReplaceAll(out, id, "ID"), "")
		fmt.Fprintf(&all, "%s: exit %d\n%s\n", line, code, passing.ReplaceAllString(out, "*"))
	}
	running := func(id string) {
		c.await(id+" runs", func(jobs map[train.JobID]train.Job) bool { return jobs[train.JobID(id)].State == train.StateRunning })
	}
	do("submit --id ID -- sh -c echo${IFS}hello;sleep${IFS}600")
	running(id)
	for _, line := range []string{
		"submit --id ID -- sleep 5",
		"submit --min-devices 64 --strategy all_reduce --id ID-large -- sleep 5",
		"submit --priority 1000 --id ID-high -- sleep 5",
		"submit --after ID-none --id ID-after -- sleep 5",
		"logs ID", "logs --tail 1 ID", "logs ID-none",
		"wait --timeout 1ms ID", "wait ID-none", "wait ID-large",
		"pause ID", "hold --reason lunch ID", "release ID", "release ID", "hold ID ID-none",
		"cancel ID-none", "cancel ID", "cancel ID", "wait ID", "resume ID",
	} {
		do(line)
	}
	running(id)
	do("pause --force --wait ID")
	do("requeue ID")
	do("resume ID")
	running(id)
	do("rerun --id ID-again ID")
	running(id + "-again")
	do("cancel --no-wait ID-again")
	do("cancel ID")
	do("wait ID ID-again")
	do("logs -f ID-again")
	do("run --id ID-run -- echo hello")
	do("logs ID-run")
	return all.String()
}
