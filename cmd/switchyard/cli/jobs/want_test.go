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
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/fit"
	"github.com/switchyard-dl/switchyard/services/admission/register"
)

// fold plays admission for wishes and edits until the test ends.
func fold(t *testing.T, b *bus.Bus) {
	t.Helper()
	jobs, err := bus.OpenKV(t.Context(), b, contract.Jobs)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var follower conc.WaitGroup
	follower.Go(func() {
		_ = b.Follow(ctx, event.StreamJobs, []string{"yard.job.*." + event.FactWanted + ".v1", "yard.job.*." + event.FactEditRequested + ".v1"}, 1, func(m bus.Message) {
			kind, _ := event.Find(m.Parsed)
			body, err := event.DecodeBody(kind, m.Data)
			if err != nil {
				t.Error(err)
				return
			}
			_, err = jobs.Modify(ctx, m.Parsed.ID, func(j *train.Job) (bool, error) {
				f := register.Fact{Name: m.Parsed.Fact, Sequence: m.Sequence + 1_000_000, Time: time.Now(), Body: body}
				if asked, is := body.(*event.EditRequested); is {
					d := event.EditDecided{Edit: asked.Edit, Request: m.Sequence, ID: asked.ID, By: asked.By, Reason: asked.Reason}
					d.Refused = fit.CheckEdit(*j, asked.Edit, fit.Identity{TrustBodies: true, At: time.Now()}, fit.Inventory{}, fit.Paths{})
					f.Name, f.Body = event.FactEditDecided, &d
				}
				next, err := register.Fold(*j, f)
				changed := next.LastSequence != j.LastSequence
				*j = next
				return changed, err
			})
			if err != nil && ctx.Err() == nil { // a command may see the record before its writer knows that it is written
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
	trial := clitest.Bert() // the id of a trial's job names its experiment
	trial.ID, trial.Spec.Name = contract.TrialJob("search", 0), "trial"
	clitest.PutJob(t, s.Bus, trial)
	clitest.Put(t, s.Bus, contract.Experiments, "search", contract.ExperimentRecord{ID: "search", Trials: []contract.Trial{{Job: trial.ID}}})
	fold(t, s.Bus)
	for _, c := range []struct {
		command string
		code    int
		says    string
	}{
		{"pause trial", exit.Failed, "is a trial: experiment search decides when it runs"},
		{"pause mnist", exit.Failed, "job mnist-77de has ended: succeeded"},
		{"resume mnist", exit.Failed, "job mnist-77de has ended: succeeded"},
		{"resume resnet", exit.Failed, "is neither held nor paused: running"},
		{"pause silent", exit.Failed, "job silent-1 cannot be asked to leave"},
		{"pause --force silent", exit.OK, "leaves at its next checkpoint, or is ended if it cannot be asked to: paused by"},
		{"hold resnet", exit.OK, "job resnet-4f2a running: does not start again once it has left: held by"},
		{"release resnet", exit.OK, "job resnet-4f2a running: may run again: released by"},
		{"pause --reason lunch resnet", exit.OK, ": lunch"},
		{"resume resnet", exit.OK, "released by"},
		{"requeue resnet", exit.OK, "put at the end of the queue by"},
		{"hold --reason audit resnet", exit.OK, ": audit"},
		{"requeue resnet", exit.OK, "; does not start again once it has left: held by"},
		{"release resnet", exit.OK, "released by"},
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

func TestSetChangesKeys(t *testing.T) {
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	fold(t, s.Bus)
	for _, c := range []struct {
		command string
		code    int
		says    string
	}{
		{"set resnet priority=80 labels.phase=full time_limit=9999h --reason paper", exit.OK, "job resnet-4f2a labels: none -> {\"phase\":\"full\"}, priority: 50 -> 80, time_limit: none -> 9999h"},
		{"set resnet bert notify=mailto:ann@x.org,https://x.org/h", exit.Failed, "notify[0].mail: no mail is sent here"},
		{"set resnet deadline= labels.phase=", exit.OK, "labels: {\"phase\":\"full\"} -> none"},
		{"set resnet restart_silent=true", exit.OK, "restart_silent: none -> true"},
		{"set resnet restart_silent=false project=true", exit.OK, "project: none -> true, restart_silent: true -> none"},
		{"set resnet cores=1", exit.Failed, "NotWhileRunning cores: changes only while the job waits, and it is running"},
		{"set bert devices=2 strategy=none", exit.Usage, "Fixed strategy: does not change once the job is submitted"},
		{"set resnet time_limit=1h", exit.Failed, "OutOfRange time_limit: the job has run for longer than 1h already (`switchyard cancel resnet-4f2a` ends it)"},
		{"set bert max_devices=8", exit.OK, "job bert-91bc max_devices: "},
		{"set resnet prio=80", exit.Usage, "UnknownField prio: no such field"},
		{"set resnet priority=high", exit.Usage, "WrongType priority: want a whole number, found \"high\""},
		{"set resnet priority=NaN", exit.Usage, "WrongType priority"},
		{"set resnet deadline=tomorrow", exit.Usage, "WrongType deadline: want a time by RFC 3339"},
		{"set resnet labels=a", exit.OK, "labels: none -> {\"a\":\"\"}"},
		{"set mnist priority=1", exit.Failed, "job mnist-77de stays as it is:\n  JobEnded the job has ended: succeeded"},
		{"set vgg time_limit=2h", exit.OK, "time_limit: none -> 2h"},
		{"set resnet", exit.Usage, "want KEY=VALUE"},
		{"set priority=1", exit.Usage, "want jobs to act on"},
		{"set --all --all-users priority=10", exit.Usage, "give --yes"},
		{"set --all --all-users --yes priority=10", exit.OK, "job bert-91bc priority: 50 -> 10"},
	} {
		code, out, stderr := s.Run(strings.Fields(c.command)...)
		if code != c.code || !strings.Contains(out+stderr, c.says) {
			t.Errorf("%s: exit %d\n%s%s, want %d, %q", c.command, code, out, stderr, c.code, c.says)
		}
	}
}

// What a filter chooses is shown first, and is never another user's without --all-users or --user. Each job stands for
// itself.
func TestVerbsChooseJobs(t *testing.T) {
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	mine := clitest.Bert()
	mine.ID, mine.Spec.User, mine.Spec.Project = "mine-1", installation.CurrentUser(), "thesis"
	clitest.PutJob(t, s.Bus, mine)
	silent := clitest.Resnet()
	silent.ID, silent.Spec.User, silent.Spec.Project = "mine-2", installation.CurrentUser(), "thesis"
	clitest.PutJob(t, s.Bus, silent)
	clitest.Put(t, s.Bus, contract.Attempts, "mine-2", train.Attempt{Job: "mine-2", Number: 2, Node: "gpu1", Phase: train.PhaseRunning, StartedAt: clitest.Ago(time.Hour)})
	fold(t, s.Bus)
	for _, c := range []struct {
		command string
		code    int
		says    []string
		not     string
	}{
		{"cancel", exit.Usage, []string{"want jobs to act on"}, ""},
		{"cancel mine-1 --all", exit.Usage, []string{"want either jobs or filters, found both"}, ""},
		{"cancel mine-1 --all-users", exit.Usage, []string{"found both"}, ""},
		{"cancel --all", exit.Usage, []string{"  mine-1  bert of ", "there is no terminal to ask whether to cancel 2 jobs", "give --yes"}, "bert-91bc"},
		{"cancel --all --state runing", exit.Usage, []string{"did you mean running?"}, ""},
		{"cancel --project none --yes", exit.OK, []string{"no job to cancel"}, ""},
		{"pause --project thesis --yes", exit.Failed, []string{"job mine-1 paused: ", "job mine-2 cannot be asked to leave"}, "bert-91bc"},
		{"release --all --yes", exit.OK, []string{"job mine-1 queued: may run again"}, "job mine-2"},
		{"hold --user bob --state queued --yes", exit.OK, []string{"job bert-91bc held: held by"}, "mine-1"},
		{"cancel --all --yes --no-wait -o json", exit.OK, []string{`"id": "mine-1"`, `"id": "mine-2"`, `"result": "requested"`}, "bert-91bc"},
	} {
		code, out, stderr := s.Run(strings.Fields(c.command)...)
		for _, says := range c.says {
			if code != c.code || !strings.Contains(out+stderr, says) {
				t.Errorf("%s: exit %d\n%s%s, want %d, %q", c.command, code, out, stderr, c.code, says)
			}
		}
		if c.not != "" && strings.Contains(out+stderr, c.not) {
			t.Errorf("%s: %s%s", c.command, out, stderr)
		}
	}
}
