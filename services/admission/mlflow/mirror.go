package mlflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Mirror logs the facts of jobs. A fact is handled again until the server has taken it, and again after a crash, so
// what the server knows decides. A run has the job's id, the time of its submission and the last epoch that was logged
// as tags. Values of an epoch that the server may have taken in part are looked up before they are logged again.
type Mirror struct {
	server     *client
	experiment string
	jobs       *bus.KV[train.Job]
	log        *slog.Logger

	mu   sync.Mutex
	runs map[train.JobID]*known
}

// known is what this process knows of the run of a job.
type known struct {
	id string
	// fresh is set if this process has made it.
	fresh bool
	// logged is the newest epoch that the server has; sure is set if it has nothing beyond.
	logged epoch
	sure   bool
}

// epoch orders the epochs of a job: a later attempt may do some of them again.
type epoch struct{ attempt, done int }

func (e epoch) String() string { return fmt.Sprintf("%d/%d", e.attempt, e.done) }

func (e epoch) after(o epoch) bool {
	return e.attempt > o.attempt || e.attempt == o.attempt && e.done > o.done
}

// New makes a mirror. The records of jobs say what they were submitted with.
func New(c settings.MLflow, jobs *bus.KV[train.Job], log *slog.Logger) *Mirror {
	return &Mirror{server: newClient(c), experiment: c.Experiment, jobs: jobs, log: log, runs: map[train.JobID]*known{}}
}

// Consumer reads the facts that are mirrored.
func (m *Mirror) Consumer() bus.Consumer {
	var filters []string
	for _, fact := range []string{
		event.FactStarted, event.FactEpochEnded, event.FactCheckpointWritten, event.FactPreempted, event.FactAttemptLost, event.FactSucceeded, event.FactFailed, event.FactCancelled,
	} {
		filters = append(filters, event.Subject{Entity: "job", ID: "*", Fact: fact, Version: 1}.String())
	}
	return bus.Consumer{
		Name: "mlflow", Stream: event.StreamJobs, Filters: filters, Lane: func(f bus.Message) string { return f.Parsed.ID }, Handle: m.handle,
	}
}

func (m *Mirror) handle(ctx context.Context, f bus.Message) ([]event.Fact, error) {
	kind, found := event.Find(f.Parsed)
	if !found || f.Source != kind.Publisher {
		return nil, nil // the register sets it aside
	}
	body, err := event.DecodeBody(kind, f.Data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", bus.ErrPoison, err)
	}
	job, err := m.jobs.Get(ctx, f.Parsed.ID)
	if errors.Is(err, bus.ErrNotFound) {
		return nil, nil // purged
	}
	if err == nil {
		err = m.take(ctx, job.Value, body, f.Time.UnixMilli())
	}
	// The person who submits a job chooses its project. The experiment of all other jobs is the operator's choice: once he
	// has put it right, they are mirrored.
	own := job.Value.Spec.Project != ""
	switch {
	case final(err), own && forbidden(err):
		return nil, fmt.Errorf("%w: %w", bus.ErrPoison, err)
	case err != nil:
		m.log.Warn("a fact is not mirrored to MLflow yet", "job", f.Parsed.ID, "fact", f.Parsed.Fact, "error", err)
	}
	return nil, err
}

// take mirrors one fact.
func (m *Mirror) take(ctx context.Context, job train.Job, body any, at int64) error {
	if _, cancelled := body.(*event.Cancelled); cancelled && job.Attempt == 0 {
		return nil // it never started
	}
	k, err := m.run(ctx, job, at)
	if err != nil {
		return err
	}
	switch b := body.(type) {
	case *event.Started:
		tags := []pair{{"switchyard.node", string(b.Node)}, {"switchyard.devices", train.JoinDevices(b.Devices)}, {"switchyard.attempt", strconv.Itoa(b.Attempt)}}
		values := batch{Tags: tags}
		if b.Attempt == 1 || k.fresh { // the server refuses other values later
			values.Params = params(job.Spec)
		}
		if err := m.send(ctx, k, values); err != nil {
			return err
		}
		return m.server.update(ctx, k.id, "RUNNING", 0)
	case *event.EpochEnded:
		return m.epochEnded(ctx, k, b, at)
	case *event.CheckpointWritten:
		return m.send(ctx, k, batch{Tags: []pair{{"switchyard.checkpoint", b.Path}}})
	case *event.Preempted, *event.AttemptLost:
		return m.server.update(ctx, k.id, "SCHEDULED", 0)
	case *event.Succeeded:
		return m.end(ctx, k, job, "FINISHED", b.Note, at)
	case *event.Failed:
		return m.end(ctx, k, job, "FAILED", b.Reason.Message, at)
	case *event.Cancelled:
		return m.end(ctx, k, job, "KILLED", "", at)
	}
	return nil
}

// run returns the run of a job, and makes it if the server has none.
func (m *Mirror) run(ctx context.Context, job train.Job, at int64) (*known, error) {
	m.mu.Lock()
	k := m.runs[job.ID]
	m.mu.Unlock()
	if k != nil {
		return k, nil
	}
	experiment, err := m.server.experiment(ctx, cmp.Or(job.Spec.Project, m.experiment))
	if err != nil {
		return nil, err
	}
	identity := []pair{{"switchyard.job", string(job.ID)}, {"switchyard.submitted", job.SubmittedAt.UTC().Format(time.RFC3339Nano)}}
	r, found, err := m.server.find(ctx, experiment, identity)
	if err == nil && !found {
		r, err = m.server.create(ctx, experiment, cmp.Or(job.Spec.Name, string(job.ID)), at, append(identity, tags(job.Spec)...))
	}
	if err != nil {
		return nil, err
	}
	k = &known{id: r.Info.RunID, fresh: !found}
	for _, t := range r.Data.Tags {
		if t.Key == loggedTag {
			_, _ = fmt.Sscanf(t.Value, "%d/%d", &k.logged.attempt, &k.logged.done)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs[job.ID] = k
	return k, nil
}

// loggedTag has the newest epoch that was logged. It is sent after the values of the epoch.
const loggedTag = "switchyard.logged"

func (m *Mirror) epochEnded(ctx context.Context, k *known, b *event.EpochEnded, at int64) error {
	this := epoch{b.Attempt, b.EpochsDone}
	if !this.after(k.logged) {
		return nil
	}
	values := map[string]float64{"devices": float64(b.Devices)}
	for name, value := range map[string]float64{"epoch_seconds": b.EpochSeconds, "step_seconds": b.StepSeconds, "samples": float64(b.Samples)} {
		if value > 0 {
			values[name] = value
		}
	}
	maps.Copy(values, b.Metrics)
	if b.Loss != nil {
		values["loss"] = *b.Loss
	}
	var all []metric
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := metric{Key: key(name), Value: values[name], Timestamp: at, Step: int64(b.EpochsDone)}
		if !k.sure {
			there, err := m.server.has(ctx, k.id, value)
			if err != nil {
				return err
			}
			if there {
				continue
			}
		}
		all = append(all, value)
	}
	k.sure = false // until the server says so
	if err := m.send(ctx, k, batch{Metrics: all, Tags: []pair{{loggedTag, this.String()}}}); err != nil {
		return err
	}
	k.logged, k.sure = this, true
	return nil
}

// end closes a run; a job that is resumed opens it again.
func (m *Mirror) end(ctx context.Context, k *known, job train.Job, status, message string, at int64) error {
	if err := m.send(ctx, k, batch{Tags: []pair{{"switchyard.message", message}}}); err != nil {
		return err
	}
	if err := m.server.update(ctx, k.id, status, at); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.runs, job.ID)
	return nil
}

// send logs a batch in as many requests as its size needs; the tags come with the last metrics.
func (m *Mirror) send(ctx context.Context, k *known, all batch) error {
	for {
		part := batch{RunID: k.id}
		part.Metrics, all.Metrics = cut(all.Metrics, batchMetrics)
		if part.Params, all.Params = cut(all.Params, batchParams); len(all.Metrics)+len(all.Params) == 0 {
			part.Tags, all.Tags = cut(all.Tags, batchTags)
		}
		for i, p := range part.Params {
			part.Params[i] = pair{p.Key, clip(p.Value, longestParam)}
		}
		for i, t := range part.Tags {
			part.Tags[i] = pair{t.Key, clip(t.Value, longestTag)}
		}
		if err := m.server.post(ctx, "runs/log-batch", part, &struct{}{}); err != nil {
			return err
		}
		if len(all.Metrics)+len(all.Params)+len(all.Tags) == 0 {
			return nil
		}
	}
}

func cut[T any](list []T, n int) (first, rest []T) {
	n = min(n, len(list))
	return list[:n], list[n:]
}

// params are what a job was submitted with, as far as it shapes the training. They never change.
func params(s train.Spec) []pair {
	var all []pair
	for name, value := range map[string]string{
		"strategy": string(s.Strategy), "launch": string(s.Launch), "image": s.Image, "gpu": s.GPU, "family": s.Family,
	} {
		if value != "" {
			all = append(all, pair{name, value})
		}
	}
	for name, value := range map[string]int{
		"batch_size": s.BatchSize, "global_batch_size": s.GlobalBatchSize, "training_set_size": s.TrainingSetSize, "max_epochs": s.MaxEpochs, "max_steps": s.MaxSteps,
		"min_devices": s.MinDevices, "max_devices": s.MaxDevices, "cores": s.Cores,
	} {
		if value != 0 {
			all = append(all, pair{name, strconv.Itoa(value)})
		}
	}
	slices.SortFunc(all, func(a, b pair) int { return strings.Compare(a.Key, b.Key) })
	return all
}

// tags describe a run for people. The environment is left out: it may hold secrets.
func tags(s train.Spec) []pair {
	all := []pair{
		{"mlflow.user", s.User}, {"mlflow.source.type", "JOB"}, {"mlflow.source.name", clip(cmp.Or(s.ScriptPath, strings.Join(s.Command, " ")), longestTag)},
	}
	for _, label := range slices.Sorted(maps.Keys(s.Labels)) {
		all = append(all, pair{key("label." + label), clip(s.Labels[label], longestTag)})
	}
	first, _ := cut(all, batchTags/2)
	return first
}

// key makes a name one that MLflow takes.
func key(name string) string {
	return clip(strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("_-. /", r) {
			return r
		}
		return '_'
	}, name), longestKey)
}

func clip(text string, most int) string {
	letters := []rune(text)
	return string(letters[:min(len(letters), most)])
}
