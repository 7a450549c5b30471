package jobs

import (
	"context"
	"crypto/rand"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/explain"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

func setCommand(a *console.Console) *cobra.Command {
	var c choice
	var reason string
	var always, waiting []string
	for _, k := range train.EditableKeys() {
		if k.Waiting {
			waiting = append(waiting, k.Key)
		} else {
			always = append(always, k.Key)
		}
	}
	cmd := &cobra.Command{
		Use:   "set JOB.. KEY=VALUE..",
		Short: "Change keys of jobs that have not ended: priority, deadline, limits, labels, ...",
		Long: `Gives keys of a job file other values while the jobs live. KEY= takes the value away; labels.KEY=VALUE is one label. The values are checked as those
of a submission. ` + choiceHelp + `

At any time change: ` + strings.Join(always, ", ") + `.
While a job waits change: ` + strings.Join(waiting, ", ") + `.
A job that has failed or was cancelled waits, too: ` + "`switchyard resume`" + ` continues it.

Exit codes: 0 all jobs have the new values, 1 a job is unknown or refuses them, 2 a key or a value is wrong.`,
		Example: `  switchyard set resnet-4f2a priority=80 deadline=2030-01-31T18:00:00Z
  switchyard set --project thesis time_limit=12h labels.phase=full
  switchyard set bert notify=mailto:ann@example.org deadline=`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var refs, values []string
			for _, arg := range args {
				if strings.Contains(arg, "=") {
					values = append(values, arg)
				} else {
					refs = append(refs, arg)
				}
			}
			request, err := readEdit(values)
			if err != nil {
				return err
			}
			if err := c.check(refs); err != nil {
				return err
			}
			request.By, request.Reason = installation.CurrentUser(), reason
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error { return set(ctx, a, y, refs, c, request) })
		},
	}
	cmd.ValidArgsFunction = completeEdit(a)
	c.declare(cmd.Flags())
	cmd.Flags().StringVar(&reason, "reason", "", "reason, shown with the job")
	return cmd
}

// completeEdit completes jobs first, then keys, and values of which there are few.
func completeEdit(a *console.Console) console.Completer {
	return func(cmd *cobra.Command, given []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		switch key, _, valued := strings.Cut(begun, "="); {
		case valued && key == "project":
			return a.CompleteProperty(func(j view.Job) []string { return []string{"project=" + j.Project} })(cmd, given, begun)
		case valued:
			return []cobra.Completion{"device=gpu", "device=cpu", "restart_silent=true", "restart_silent=false"}, cobra.ShellCompDirectiveNoFileComp
		case len(given) == 0:
			return a.CompleteJobs()(cmd, given, begun)
		}
		var keys []cobra.Completion
		for _, k := range train.EditableKeys() {
			when := "at any time"
			if k.Waiting {
				when = "while the job waits"
			}
			if strings.HasPrefix(k.Key, begun) {
				keys = append(keys, cobra.CompletionWithDesc(k.Key+"=", when))
			}
		}
		if len(keys) == 0 {
			return a.CompleteJobs()(cmd, given, begun)
		}
		return keys, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveKeepOrder
	}
}

// readEdit reads KEY=VALUE pairs as strictly as admission does.
func readEdit(pairs []string) (event.EditRequested, error) {
	if len(pairs) == 0 {
		return event.EditRequested{}, exit.Errorf(exit.Usage, "e.g. priority=80", "want KEY=VALUE")
	}
	values, unset := map[string]any{}, []string{}
	for _, pair := range pairs {
		name, text, _ := strings.Cut(pair, "=")
		key, label, single := strings.Cut(name, ".")
		switch {
		case text == "" || text == "false" && typeOf(key) == reflect.TypeFor[bool]():
			unset = append(unset, name)
		case single:
			labels, is := values[key].(map[string]string)
			if !is {
				labels = map[string]string{}
			}
			labels[label] = text
			values[key] = labels
		default:
			values[key] = valueOf(key, text)
		}
	}
	data, err := json.Marshal(map[string]any{"set": values, "unset": unset})
	if err != nil {
		return event.EditRequested{}, fmt.Errorf("encode the edit: %w", err)
	}
	kind, _ := event.Find(event.JobSubject("x", event.FactEditRequested))
	body, reasons := event.DecodeRequest(kind, data)
	request, is := body.(*event.EditRequested)
	if len(reasons) > 0 || !is {
		return event.EditRequested{}, exit.Usagef("%s", strings.ReplaceAll(joinReasons(reasons), " set.", " "))
	}
	return *request, nil
}

// valueOf returns the JSON value that a person means by a text. What cannot be read stays text and is refused with what
// was wanted.
func valueOf(key, text string) any {
	t := typeOf(key)
	switch {
	case t == nil:
		return text
	case t == reflect.TypeFor[[]train.NotifySpec]():
		var all []train.NotifySpec
		for target := range strings.SplitSeq(text, ",") {
			n, ok := train.ParseNotify(target)
			if !ok {
				return text
			}
			all = append(all, n)
		}
		return all
	case t.Kind() == reflect.Map:
		labels := map[string]string{}
		for pair := range strings.SplitSeq(text, ",") {
			label, value, _ := strings.Cut(pair, "=")
			labels[label] = value
		}
		return labels
	case t.Kind() == reflect.String, t == reflect.TypeFor[*time.Time](), reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return text
	}
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return text
}

// typeOf returns the type of the values of a key that may change, or nil.
func typeOf(key string) reflect.Type {
	keys := train.EditableKeys()
	if i := slices.IndexFunc(keys, func(k train.EditableKey) bool { return k.Key == key }); i >= 0 {
		return keys[i].Type
	}
	return nil
}

// setRow says what became of an edit.
type setRow struct {
	ID train.JobID `json:"id"`
	train.Edited
}

// set publishes an edit of each job and waits for the answers of admission.
func set(ctx context.Context, a *console.Console, y console.Yard, refs []string, c choice, request event.EditRequested) error {
	jobs, err := c.find(ctx, a, y, refs, "change", train.LiveStates()...)
	if err != nil {
		return err
	}
	rows := outcomes[setRow]{}
	for _, j := range jobs {
		row, err := setOne(ctx, y, j, request)
		rows.add(row, err)
	}
	return rows.print(a, func(r setRow) string { return fmt.Sprintf("job %s %s", r.ID, explain.EditWords(r.Edited)) })
}

func setOne(ctx context.Context, y console.Yard, j train.Job, request event.EditRequested) (setRow, error) {
	request.ID = rand.Text()
	if _, err := y.Publish(ctx, event.JobFact(j.ID, event.FactEditRequested, "edit/"+request.ID, request)); err != nil {
		return setRow{}, fmt.Errorf("job %s: %w", j.ID, err)
	}
	answered := func(j train.Job) bool { _, is := j.EditBy(request.ID); return is }
	after, err := awaitJob(ctx, y, j.ID, 10*time.Second, answered)
	if err != nil {
		return setRow{}, exit.Errorf(exit.Failed, "the request is stored and will be answered; is the admission service running?", "job %s: %v", j.ID, err)
	}
	e, _ := after.EditBy(request.ID)
	if len(e.Refused) > 0 {
		return setRow{}, exit.Errorf(exit.Failed, "", "job %s stays as it is:\n  %s", j.ID, joinReasons(e.Refused))
	}
	return setRow{j.ID, e}, nil
}
