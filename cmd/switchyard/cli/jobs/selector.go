package jobs

import (
	"errors"

	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
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

// query returns the question that the flags ask, about the jobs of this user, or of everybody.
func (s *selector) query(everybody bool) (view.Query, error) {
	q := view.Query{User: s.user, Name: s.name, Project: s.project}
	var err error
	switch {
	case everybody && s.user != "":
		return q, exit.Errorf(exit.Usage, "leave out one of them", "want --user %s or the jobs of all users, found both", s.user)
	case !everybody && s.user == "":
		q.User = console.CurrentUser()
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
