package jobs

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/register"
)

// fold plays the register for wishes until the test ends.
func fold(t *testing.T, b *bus.Bus) {
	t.Helper()
	jobs, err := bus.OpenKV(t.Context(), b, contract.Jobs)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var follower conc.WaitGroup
	follower.Go(func() {
		_ = b.Follow(ctx, event.StreamJobs, []string{"yard.job.*." + event.FactWanted + ".v1"}, 1, func(m bus.Message) {
			wish, err := event.Decode[event.Wanted](m.Data)
			if err != nil {
				t.Error(err)
				return
			}
			_, err = jobs.Modify(ctx, m.Parsed.ID, func(j *train.Job) (bool, error) {
				next, err := register.Fold(*j, register.Fact{Name: event.FactWanted, Sequence: m.Sequence + 1_000_000, Time: time.Now(), Body: &wish})
				changed := next.LastSequence != j.LastSequence
				*j = next
				return changed, err
			})
			if err != nil {
				t.Error(err)
			}
		})
	})
	t.Cleanup(func() { stop(); follower.Wait() })
}

func TestWhatPeopleWant(t *testing.T) {
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	silent := clitest.Resnet()
	silent.ID, silent.Spec.Name = "silent-1", "silent"
	clitest.PutJob(t, s.Bus, silent)
	clitest.Put(t, s.Bus, contract.Attempts, "silent-1", train.Attempt{Job: "silent-1", Number: 2, Node: "gpu1", Phase: train.PhaseRunning, StartedAt: clitest.Ago(time.Hour)})
	clitest.Put(t, s.Bus, contract.Experiments, "search", contract.ExperimentRecord{ID: "search", Trials: []contract.Trial{{Job: "bert-91bc"}}})
	fold(t, s.Bus)
	for _, c := range []struct {
		command string
		code    int
		says    string
	}{
		{"pause bert", exit.Failed, "is a trial: experiment search decides when it runs"},
		{"pause mnist", exit.Failed, "job mnist-77de has ended: succeeded"},
		{"resume mnist", exit.Failed, "job mnist-77de has ended: succeeded"},
		{"resume resnet", exit.Failed, "is neither held nor paused: running"},
		{"pause silent", exit.Failed, "job silent-1 cannot be asked to leave"},
		{"pause --force silent", exit.OK, "leaves at its next checkpoint: paused by"},
		{"hold resnet", exit.OK, "job resnet-4f2a running: does not start again once it has left: held by"},
		{"release resnet", exit.OK, "job resnet-4f2a running: may run again: released by"},
		{"pause --reason lunch resnet", exit.OK, ": lunch"},
		{"resume resnet", exit.OK, "released by"},
		{"requeue resnet", exit.OK, "put at the end of the queue by"},
		{"resume vgg", exit.OK, "job vgg-0c queued: resumed by"},
		{"hold resnet entirely-else", exit.Failed, "entirely-else"},
		{"pause --timeout -1s resnet", exit.Usage, "want more than 0s"},
	} {
		code, out, stderr := s.Run(strings.Fields(c.command)...)
		if code != c.code || !strings.Contains(out+stderr, c.says) {
			t.Errorf("%s: exit %d\n%s%s, want %d, %q", c.command, code, out, stderr, c.code, c.says)
		}
	}
}
