package cli

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// submitResult is what became of a submission.
type submitResult struct {
	ID      train.JobID    `json:"id"`
	State   train.State    `json:"state"`
	Repeat  bool           `json:"repeat,omitempty"`
	Reasons []train.Reason `json:"reasons,omitempty"`
	Message string         `json:"message,omitempty"`
}

// connect opens the bus: that of --nats, of SWITCHYARD_NATS, of the last `switchyard up`, or the default one.
func (a *app) connect(ctx context.Context) (*bus.Bus, error) {
	url := a.url()
	wait, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	b, err := bus.Connect(wait, bus.Config{URL: url, Name: "lab"})
	if err != nil {
		return nil, failure(ExitUnreachable, "start it with `switchyard up`, or name it with --nats URL or SWITCHYARD_NATS", "no bus at %s", url)
	}
	return b, nil
}

func (a *app) url() string {
	if a.nats != "" {
		return a.nats
	}
	if v := os.Getenv("SWITCHYARD_NATS"); v != "" {
		return v
	}
	path := os.Getenv("SWITCHYARD_CONTEXT")
	if path == "" {
		path = filepath.Join(installation.DataDir(), "context.json")
	}
	var up struct {
		NATS string `json:"nats"`
	}
	if data, err := os.ReadFile(path); err == nil && json.Unmarshal(data, &up) == nil && up.NATS != "" {
		return up.NATS
	}
	return installation.DefaultURL
}

// submit publishes a submission and waits for the answer of admission.
func (a *app) submit(ctx context.Context, b *bus.Bus, spec train.Spec, id train.JobID) (submitResult, error) {
	result := submitResult{ID: id}
	fact := event.OnceFact(id, event.FactSubmitted, "submitted", event.Submitted{Spec: spec})
	var err error
	if result.Repeat, err = publishOnce(ctx, b, fact); err != nil {
		return result, err
	}
	wait, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	jobs, err := bus.OpenKV[train.Job](wait, b, contract.Jobs)
	if err != nil {
		return result, err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		e, err := jobs.Get(wait, string(id))
		if err == nil && e.Value.State != train.StateSubmitted {
			j := e.Value
			result.State, result.Reasons, result.Message = j.State, j.Blockers, j.Message
			return result, refusal(j)
		}
		if err != nil && !errors.Is(err, bus.ErrNotFound) && wait.Err() == nil {
			return result, err
		}
		select {
		case <-wait.Done():
			return result, failure(ExitUnreachable, "the submission is stored; is the admission service running?", "job %s: no answer from admission in 10 s", id)
		case <-tick.C:
		}
	}
}

// publishOnce stores the fact as the first of its subject. If an equal one is there, the submission is a repetition;
// if a different one is, a conflict.
func publishOnce(ctx context.Context, b *bus.Bus, fact event.Fact) (repeat bool, err error) {
	if _, err = b.PublishAfter(ctx, fact, 0); err == nil {
		return false, nil
	}
	first, lastErr := b.Last(ctx, event.StreamJobs, fact.Subject)
	switch {
	case errors.Is(lastErr, bus.ErrNotFound):
		return false, b.Publish(ctx, fact) // it did not arrive: try until it does
	case lastErr != nil:
		return false, err
	}
	body, err := fact.Encode()
	if err != nil {
		return false, err
	}
	if string(first.Data) != string(body) {
		return false, failure(ExitError, "choose another --prefix", "%s %s: another submission has this id, and the first one stands", fact.Subject.Entity, fact.Subject.ID)
	}
	return true, nil
}

func refusal(j train.Job) error {
	if j.State != train.StateRejected {
		return nil
	}
	lines := j.Message
	if len(j.Blockers) > 0 {
		lines = joinReasons(j.Blockers)
	}
	return failure(ExitUsage, "", "job %s rejected:\n  %s", j.ID, lines)
}

func joinReasons(reasons []train.Reason) string {
	lines := make([]string, len(reasons))
	for i, r := range reasons {
		lines[i] = r.Code + " " + r.String()
	}
	return strings.Join(lines, "\n  ")
}

// readSpecFile reads a job file as strictly as admission does. Its folders are relative to the file.
func readSpecFile(path string) (train.Spec, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return train.Spec{}, failure(ExitUsage, "", "read the job file: %v", err)
	}
	spec, problems := event.DecodeJobFile(data)
	if len(problems) > 0 {
		return spec, failure(ExitUsage, "", "%s:\n  %s", path, strings.ReplaceAll(problems.Error(), "\n", "\n  "))
	}
	for _, dir := range spec.Folders() {
		if *dir != "" && !filepath.IsAbs(*dir) {
			*dir = filepath.Join(filepath.Dir(path), *dir)
		}
	}
	return spec, nil
}
