package jobs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// selector chooses jobs by their properties. Every command about several jobs has its flags.
type selector struct {
	user, name, project string
	states, labels      []string
}

func (s *selector) declare(fs *pflag.FlagSet) {
	fs.StringVar(&s.user, "user", "", "only jobs of this user (default: yours)")
	fs.StringSliceVar(&s.states, "state", nil, "only jobs in these states (repeatable, or joined by commas)")
	fs.StringVar(&s.name, "name", "", "only jobs whose name matches this pattern, e.g. 'resnet*'")
	fs.StringVar(&s.project, "project", "", "only jobs of this project")
	fs.StringSliceVar(&s.labels, "label", nil, "KEY=VALUE: only jobs with this label (repeatable: with all of them)")
}

// given reports whether a flag restricts the choice.
func (s *selector) given() bool {
	return s.user+s.name+s.project != "" || len(s.states)+len(s.labels) > 0
}

// query returns the question that the flags ask, about the jobs of this user, or of everybody.
func (s *selector) query(everybody bool) (view.Query, error) {
	q := view.Query{User: s.user, Name: s.name, Project: s.project}
	var err error
	switch {
	case everybody && s.user != "":
		return q, exit.Errorf(exit.Usage, "leave out one of them", "want --user %s or the jobs of all users, found both", s.user)
	case !everybody && s.user == "":
		q.User = installation.CurrentUser()
	}
	if q.States, err = api.States(s.states); err != nil {
		unknown, _ := errors.AsType[*api.UnknownStateError](err)
		return q, exit.Errorf(exit.Usage, unknown.Fix, "--state %v", err)
	}
	if err := api.CheckName(s.name); err != nil {
		return q, exit.Usagef("--name %v", err)
	}
	if q.Labels, err = api.Labels(s.labels); err != nil {
		return q, exit.Usagef("--label %v", err)
	}
	return q, nil
}

// choice is how a person says on which jobs a command acts: by their names, or by a selector.
type choice struct {
	selector
	all, everybody, yes bool
}

// choiceHelp explains the flags of a choice.
const choiceHelp = `A job is named by its id, the beginning of its id, or
its name (the newest job with that name); if one is unknown nothing is asked for. Filters (--state, --name, --project, --label, --user) choose all of your jobs
that have everything that is named, --all chooses all of yours; the command shows them and asks, unless --yes is given. What concerns one of them
only is reported at the end.`

func (c *choice) declare(fs *pflag.FlagSet) {
	c.selector.declare(fs)
	fs.BoolVar(&c.all, "all", false, "all of your jobs for which the command makes sense")
	fs.BoolVar(&c.everybody, "all-users", false, "with --all or a filter: the jobs of all users, not only yours")
	fs.BoolVarP(&c.yes, "yes", "y", false, "do not ask before acting on what --all and filters choose")
}

// chosen reports whether a selector names the jobs.
func (c *choice) chosen() bool { return c.all || c.given() }

func (c *choice) check(refs []string) error {
	switch {
	case len(refs) == 0 && !c.chosen():
		return exit.Errorf(exit.Usage, "name jobs, or choose them, e.g. with --state queued or --all", "want jobs to act on")
	case len(refs) > 0 && (c.chosen() || c.everybody):
		return exit.Errorf(exit.Usage, "leave out one of them", "want either jobs or filters, found both")
	}
	_, err := c.query(c.everybody)
	return err
}

// find returns the jobs to act on. A selector means the jobs in the given states, unless it names states itself; trials
// belong to their experiments.
func (c *choice) find(ctx context.Context, a *console.Console, y console.Yard, refs []string, verb string, states ...train.State) ([]train.Job, error) {
	if !c.chosen() {
		return console.FindJobs(ctx, y, refs, exit.Failed)
	}
	q, err := c.query(c.everybody)
	if err != nil {
		return nil, err
	}
	q.NoTrials, q.NoMembers = true, len(q.States) == 0 // what is asked of an array reaches its jobs
	if len(q.States) == 0 {
		q.States = states
	}
	page, err := y.Jobs(ctx, q)
	if err != nil {
		return nil, err
	}
	// What admission could not read has no user and is listed for everybody.
	page.Jobs = slices.DeleteFunc(page.Jobs, func(j view.Job) bool { return !c.everybody && j.User != q.User })
	if len(page.Jobs) == 0 {
		fmt.Fprintf(a.Stderr, "no job to %s\n", verb)
		return nil, nil
	}
	if err := c.confirm(a, page.Jobs, verb); err != nil {
		return nil, err
	}
	for _, j := range page.Jobs {
		refs = append(refs, string(j.ID))
	}
	return console.FindJobs(ctx, y, refs, exit.Failed)
}

// confirm shows the chosen jobs and asks the person at the terminal.
func (c *choice) confirm(a *console.Console, jobs []view.Job, verb string) error {
	const shown = 10
	for _, j := range jobs[:min(len(jobs), shown)] {
		fmt.Fprintf(a.Stderr, "  %s  %s of %s, %s\n", j.ID, render.EscapeText(j.Name), render.EscapeText(j.User), j.State)
	}
	if len(jobs) > shown {
		fmt.Fprintf(a.Stderr, "  and %d more\n", len(jobs)-shown)
	}
	if c.yes {
		return nil
	}
	count := render.Plural(len(jobs), "job")
	if in, is := a.Stdin.(*os.File); !is || !render.IsTerminal(in) {
		return exit.Errorf(exit.Usage, "give --yes", "there is no terminal to ask whether to %s %s", verb, count)
	}
	fmt.Fprintf(a.Stderr, "%s%s %s? [y/N] ", strings.ToUpper(verb[:1]), verb[1:], count)
	if answer, _ := bufio.NewReader(a.Stdin).ReadString('\n'); !strings.HasPrefix(strings.ToLower(answer), "y") {
		return exit.Errorf(exit.Failed, "", "nothing is asked for")
	}
	return nil
}
