// Package jobs holds the commands that submit, list, follow, pause, resume, cancel and purge jobs.
package jobs

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// Commands returns the commands about jobs.
func Commands() []console.Command {
	list := []console.Command{
		runCommand, shellCommand, attachCommand, downCommand, submitCommand, rerunCommand, psCommand, logsCommand, cancelCommand, setCommand, waitCommand, renderCommand,
		purgeCommand,
	}
	for _, v := range verbs() {
		list = append(list, v.command)
	}
	return list
}

func submitCommand(a *console.Console) *cobra.Command {
	var f submitFlags
	cmd := &cobra.Command{
		Use:   "submit [FILE|-] [flags] [-- COMMAND ARG..]",
		Short: "Submit a job from a YAML or JSON file, from flags, or both",
		Long: `Publishes one message to yard.job.<id>.submitted.v1 and waits until the job is admitted or refused. Flags go over the file, and what follows -- is
the command; without a file it runs as ` + "`switchyard run`" + ` would run it. --continue JOB alone submits what that job was submitted as, with the
flags over it. --print-event shows the message instead, for any other NATS client.`,
		Example: `  switchyard submit job.yaml
  switchyard submit --max-epochs 10 -- python3 train.py --lr 0.1
  switchyard submit --continue mnist-4f2a --max-epochs 20
  switchyard submit job.json --priority 80 --print-event`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var base train.Spec
			if len(args) == 0 && f.spec.Continue != "" {
				var err error
				if base, err = continuedSpec(cmd, a, string(f.spec.Continue)); err != nil {
					return err
				}
			}
			spec, err := readSpec(a, cmd, args, f, base)
			if err != nil {
				return err
			}
			id, err := f.jobID(spec)
			if err != nil {
				return err
			}
			if f.printEvent {
				return printEvent(a, spec, id)
			}
			if f.dryRun {
				return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error { return dryRun(ctx, a, y, spec, id) })
			}
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error {
				if err := f.bring(ctx, a, y, cmd.Flags(), &spec); err != nil {
					return err
				}
				result, err := Submit(ctx, y, spec, id)
				if err != nil {
					return err
				}
				if !result.array {
					result.Predicted, err = firstPrediction(ctx, y, result)
				}
				if err != nil {
					return err
				}
				return printSubmission(a, result, time.Now())
			})
		},
	}
	f.declare(cmd.Flags())
	return cmd
}

// printEvent shows the message that another client would publish.
func printEvent(a *console.Console, spec train.Spec, id train.JobID) error {
	return a.PrintJSON(map[string]any{"subject": event.JobSubject(id, event.FactSubmitted).String(), "body": spec})
}

// continuedSpec returns what a job was submitted as. The jobs that it waited for have no part in what continues it.
func continuedSpec(cmd *cobra.Command, a *console.Console, ref string) (spec train.Spec, err error) {
	err = a.WithYard(cmd, func(ctx context.Context, y console.Yard) error {
		d, err := y.Job(ctx, ref, exit.Usage)
		spec = submittedAs(d)
		return err
	})
	spec.After = nil
	return spec, err
}

// readSpec puts base, file, flags and command together and checks the whole as strictly as admission does.
func readSpec(a *console.Console, cmd *cobra.Command, args []string, f submitFlags, base train.Spec) (train.Spec, error) {
	file, command := args, []string(nil)
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		file, command = args[:dash], args[dash:]
	}
	if len(file) > 1 {
		return train.Spec{}, exit.Errorf(exit.Usage, "put the job's command after --", "want one file, found %d arguments", len(file))
	}
	spec, folder := base, "."
	if len(file) == 1 {
		var err error
		if spec, err = ReadSpecFile(a, file[0]); err != nil {
			return spec, err
		}
		folder = filepath.Dir(file[0])
	}
	if len(command) > 0 {
		spec.Command = command
	}
	if err := f.apply(cmd.Flags(), &spec); err != nil {
		return spec, exit.Usagef("%v", err)
	}
	spec = Named(spec)
	if err := f.buildImage(cmd.Context(), a, &spec, folder); err != nil {
		return spec, err
	}
	if len(file) == 1 && file[0] != "-" {
		warnOfLeftBehind(a, spec, file[0])
	}
	if len(file) == 0 && len(command) > 0 {
		return spec, asTyped(&spec, os.Environ())
	}
	return spec, nil
}

// maxFileBytes bounds a job file: it becomes one message.
const maxFileBytes = event.MaxBodyBytes

// ReadJobFile reads a file, or standard input where its name is -.
func ReadJobFile(a *console.Console, path string) ([]byte, error) {
	in := a.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, exit.Usagef("read the job file: %v", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxFileBytes+1))
	if err != nil {
		return nil, exit.Errorf(exit.Failed, "", "read the job file: %v", err)
	}
	if len(data) > maxFileBytes {
		return nil, exit.Usagef("%s: larger than %d bytes, which no job file is", path, maxFileBytes)
	}
	return data, nil
}

// DecodeSpec reads JSON or YAML as strictly as admission does; name says where it comes from.
func DecodeSpec(name string, data []byte) (train.Spec, error) {
	spec, problems := event.DecodeJobFile(data)
	if len(problems) > 0 {
		return spec, exit.Usagef("%s:\n  %s", name, strings.ReplaceAll(problems.Error(), "\n", "\n  "))
	}
	return spec, nil
}

// ReadSpecFile reads a job file. Its folders are meant as seen from the file.
func ReadSpecFile(a *console.Console, path string) (train.Spec, error) {
	data, err := ReadJobFile(a, path)
	if err != nil {
		return train.Spec{}, err
	}
	spec, err := DecodeSpec(path, data)
	if err != nil {
		return spec, err
	}
	if path != "-" { // folders of a file are meant as seen from the file
		for _, dir := range spec.Folders() {
			if *dir != "" && !filepath.IsAbs(*dir) {
				*dir = filepath.Join(filepath.Dir(path), *dir)
			}
		}
	}
	return spec, makeAbsolute(spec.Folders())
}

// warnOfLeftBehind says so if the command of a job file names a file beside it that the job will not find.
func warnOfLeftBehind(a *console.Console, spec train.Spec, path string) {
	if name := leftBehind(spec, filepath.Dir(path)); name != "" {
		fmt.Fprintf(a.Stderr, "warning: the job starts in an empty folder of its own, where %s is not\n  fix: add `work_dir: .` to %s to start it in that file's folder\n", render.EscapeText(name), render.EscapeText(path))
	}
}

// leftBehind returns a file in a folder that the command names and will not find: its job starts elsewhere.
func leftBehind(spec train.Spec, dir string) string {
	if spec.WorkDir != "" || spec.CustomDir != "" || spec.Image != "" {
		return ""
	}
	for _, word := range spec.Command {
		if filepath.IsAbs(word) || !filepath.IsLocal(word) {
			continue
		}
		if info, err := os.Stat(filepath.Join(dir, word)); err == nil && info.Mode().IsRegular() {
			return word
		}
	}
	return ""
}

func joinReasons(reasons []train.Reason) string {
	lines := make([]string, len(reasons))
	for i, r := range reasons {
		lines[i] = r.Code + " " + r.String()
	}
	return strings.Join(lines, "\n  ")
}

// NewID makes an id out of the job's name and 40 random bits.
func NewID(name string) train.JobID {
	clean := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, name), "-")
	if clean == "" {
		clean = "job"
	}
	random := make([]byte, 5)
	_, _ = rand.Read(random) // never fails, by its contract
	suffix := strings.ToLower(base32.StdEncoding.EncodeToString(random))
	return train.JobID(clean[:min(len(clean), 40)] + "-" + suffix)
}

// SubmitResult says how a submission ended.
type SubmitResult struct {
	ID      train.JobID    `json:"id"`
	State   train.State    `json:"state"`
	Repeat  bool           `json:"repeat,omitempty"`
	Reasons []train.Reason `json:"reasons,omitempty"`
	Message string         `json:"message,omitempty"`
	// Predicted is when the job starts and ends by the first plan that knows it.
	Predicted train.Predicted `json:"predicted,omitzero"`
	// array says that an array of jobs was submitted.
	array bool
}

const (
	// admissionPatience bounds the wait for the answer of admission: a busy machine takes its time, and the job is stored.
	admissionPatience = 30 * time.Second
	// planPatience bounds the wait for the first plan.
	planPatience = time.Second
)

// Submit publishes a submission and waits for the answer of admission.
func Submit(ctx context.Context, y console.Yard, spec train.Spec, id train.JobID) (SubmitResult, error) {
	result := SubmitResult{ID: id, array: spec.Array != ""}
	if err := findNamed(ctx, y, &spec); err != nil {
		return result, err
	}
	var err error
	result.Repeat, err = y.Publish(ctx, event.OnceFact(id, event.FactSubmitted, "submitted", event.Submitted{Spec: spec}))
	if err != nil {
		return result, err
	}
	j, err := awaitJob(ctx, y, id, admissionPatience, func(j train.Job) bool { return j.State != train.StateSubmitted })
	if errors.Is(err, errNotSeen) {
		err = exit.Errorf(exit.Unreachable, "the submission is stored and will be taken up; is the admission service running? `switchyard describe "+string(id)+"` tells", "job %s: no answer from admission in %s", id, admissionPatience)
	}
	if err != nil {
		return result, err
	}
	result.State, result.Reasons, result.Message = j.State, j.Blockers, j.Message
	return result, refusal(j)
}

// findNamed replaces what a person called the jobs to wait for, and the job to continue, by their ids.
func findNamed(ctx context.Context, y console.Yard, spec *train.Spec) error {
	if spec.Continue != "" {
		job, err := y.Find(ctx, string(spec.Continue), exit.Usage)
		if err != nil {
			return fmt.Errorf("continue: %w", err)
		}
		spec.Continue = job.ID
	}
	found := &train.AfterSpec{}
	for _, d := range spec.Dependencies() {
		job, err := y.Find(ctx, string(d.Job), exit.Usage)
		if err != nil {
			return fmt.Errorf("after: %w", err)
		}
		found.Add(train.Dependency{Job: job.ID, On: d.On})
	}
	if spec.After != nil {
		spec.After = found
	}
	return nil
}

// firstPrediction returns what the first plan that knows the job predicts, if there is one within a moment.
func firstPrediction(ctx context.Context, y console.Yard, r SubmitResult) (train.Predicted, error) {
	var standing view.Standing
	var unread error
	fresh := !r.Repeat
	_, err := awaitJob(ctx, y, r.ID, planPatience, func(j train.Job) bool {
		admitted := j.State == train.StateQueued && j.Reason == train.ReasonAdmitted
		if fresh && admitted { // no plan knows it yet; the first one that does changes the record
			fresh = false
			return false
		}
		standing, unread = y.Standing(ctx, r.ID)
		return unread != nil || standing.Plan != nil || !admitted
	})
	if err = cmp.Or(err, unread); errors.Is(err, errNotSeen) || standing.Plan == nil {
		return train.Predicted{}, nil
	}
	return standing.Plan.Predicted, err
}

func refusal(j train.Job) error {
	if j.State != train.StateRejected {
		return nil
	}
	code := exit.Usage
	if j.Infeasible {
		code = exit.Infeasible
	}
	lines := j.Message
	if len(j.Blockers) > 0 {
		lines = joinReasons(j.Blockers)
	}
	return exit.Errorf(code, "", "job %s rejected:\n  %s", j.ID, lines)
}

func printSubmission(a *console.Console, r SubmitResult, now time.Time) error {
	if a.Output == "json" {
		return a.PrintJSON(r)
	}
	word := "admitted"
	if r.Repeat {
		word = "was submitted before; nothing changes"
	}
	fmt.Fprintf(a.Stdout, "job %s %s (%s)\n", r.ID, word, r.State)
	if p := r.Predicted; p.Start != nil {
		fmt.Fprintf(a.Stdout, "  %s\n", render.ETA(p, now))
	}
	if p := r.Predicted; p.Finish != nil {
		fmt.Fprintf(a.Stdout, "  ends in %s\n", render.In(*p.Finish, now))
	}
	next := "  next  switchyard logs -f %s | switchyard describe %s\n"
	if r.array {
		next = "  next  switchyard ps %s | switchyard wait %s\n"
	}
	_, err := fmt.Fprintf(a.Stdout, next, r.ID, r.ID)
	return err
}
