package executor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
	"github.com/switchyard-dl/switchyard/services/executor/local"
)

// apply does one action. changed says that a record changed, so that more may be to do.
func (e *executor) apply(ctx context.Context, action diff.Action) (changed bool, err error) {
	a, _ := e.picture.attempt(action.Job)
	if action.Kind == diff.Start && a.Number != action.Number-1 || action.Kind != diff.Start && a.Number != action.Number {
		return true, nil // the record changed since: decide anew
	}
	switch action.Kind {
	case diff.Start:
		return true, e.start(ctx, action, a)
	case diff.RequestStop:
		a.Stop, a.StopSince = action.Cause, time.Now().UTC()
		if err := e.swap(ctx, a); err != nil {
			return false, err
		}
		e.log.Info("attempt asked to leave", "job", a.Job, "attempt", a.Number, "cause", a.Stop, "reason", action.Reason.Message)
		return true, e.tellStop(ctx, a, action.Reason)
	case diff.Kill:
		return false, e.kill(ctx, action, a)
	case diff.Decide:
		return true, e.decide(ctx, a)
	case diff.Tell:
		return true, e.tell(ctx, a)
	case diff.Cancel:
		return true, e.cancel(ctx, action, a)
	}
	return false, fmt.Errorf("apply %q: %w", action.Kind, errors.ErrUnsupported)
}

// tellStop tells once that an attempt was asked to leave. The record is what counts, so the fact comes after it; an executor that finds such a record tells
// it again, with the same key.
func (e *executor) tellStop(ctx context.Context, a train.Attempt, reason train.Reason) error {
	key := diff.ReportKey{Job: a.Job, Number: a.Number}
	if e.stopTold[key] {
		return nil
	}
	if err := e.publish(ctx, stopFact(a, reason)); err != nil {
		return err
	}
	e.stopTold[key] = true
	return nil
}

// start claims the next attempt of a job. Its processes are started when the claim is stored, by whoever sees a claim without them.
func (e *executor) start(ctx context.Context, action diff.Action, last train.Attempt) error {
	e.picture.mu.Lock()
	node := e.picture.node
	e.picture.mu.Unlock()
	if _, err := devices(node, action.Devices); err != nil {
		return fmt.Errorf("start %s: %w", action.Job, err)
	}
	capability, token, err := e.backend.Secrets(action.Job, action.Number)
	if err != nil {
		return fmt.Errorf("start %s: %w", action.Job, err)
	}
	a := train.Attempt{
		Job: action.Job, Number: action.Number, Node: e.node, Generation: action.Generation, Devices: action.Devices, Phase: train.PhaseClaimed,
		CapabilityHash: hash(capability), TokenHash: hash(token), StartedEpochs: action.StartedEpochs, LostInARow: action.LostInARow,
	}
	now := time.Now()
	if err := e.swap(ctx, a); err != nil {
		return fmt.Errorf("claim attempt %d of %s after %d: %w", a.Number, a.Job, last.Number, err)
	}
	e.claimedAt[diff.ReportKey{Job: a.Job, Number: a.Number}] = now
	e.metrics.starts.Inc()
	_, err = e.launchInTime(ctx, a)
	return err
}

// launches counts the supervisors that were started for an attempt.
type launches struct {
	tries int
	next  time.Time
}

// launchInTime starts the processes of a claimed attempt unless they are being started. What failed, or a supervisor that ended without taking the attempt
// over, is tried again later each time. soon asks for another look in a moment.
func (e *executor) launchInTime(ctx context.Context, a train.Attempt) (soon bool, err error) {
	if e.backend.Starting(a.Job, a.Number) {
		return true, nil
	}
	key, now := diff.ReportKey{Job: a.Job, Number: a.Number}, time.Now()
	l := e.launches[key]
	if now.Before(l.next) {
		return false, nil
	}
	if l.tries > 0 {
		e.report(ctx, "attempt is started again", a.Job, fmt.Errorf("attempt %d: no supervisor has taken it over: %w", a.Number, errNotTaken))
	}
	l.tries++
	l.next = now.Add(diff.RetryDelay(l.tries))
	e.launches[key] = l
	return true, e.launch(a)
}

var errNotTaken = errors.New("shim.log in its folder may say why")

func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// devices describes the devices of an allocation as the node's agent does.
func devices(node train.Node, ids []train.DeviceID) ([]train.Device, error) {
	if node.ID == "" || node.JobAPI == "" {
		return nil, fmt.Errorf("the node's agent has not described the node yet: %w", bus.ErrAway)
	}
	known := map[train.DeviceID]train.Device{}
	for _, d := range node.Devices {
		known[d.ID] = d
	}
	var list []train.Device
	for _, id := range ids {
		d, found := known[id]
		if !found {
			return nil, fmt.Errorf("device %s: %w", id, errNoDevice)
		}
		list = append(list, d)
	}
	return list, nil
}

var errNoDevice = errors.New("not on this node (any more)")

// launch starts the processes of a claimed attempt. What can never work is recorded as its end; any other trouble is tried again.
func (e *executor) launch(a train.Attempt) error {
	e.picture.mu.Lock()
	node, job, known := e.picture.node, e.picture.jobs[a.Job], false
	_, known = e.picture.jobs[a.Job]
	restarts := diff.Restarts(e.picture.state(e.node, time.Time{}), a)
	e.picture.mu.Unlock()
	if !known {
		return fmt.Errorf("start %s: the register has no such job: %w", a.Job, bus.ErrNotFound)
	}
	found, err := devices(node, a.Devices)
	if err != nil {
		return fmt.Errorf("start %s: %w", a.Job, err)
	}
	capability, token, err := e.backend.Secrets(a.Job, a.Number)
	if err != nil {
		return fmt.Errorf("start %s: %w", a.Job, err)
	}
	if hash(token) != a.TokenHash || hash(capability) != a.CapabilityHash {
		// It was claimed over another data folder, or this one was emptied since: whether it ran is not known.
		return e.backend.Refuse(a.Job, a.Number, train.Exit{Lost: true})
	}
	if job.Spec.Image != "" && node.ContainerRuntime == "" {
		return e.backend.Refuse(a.Job, a.Number, train.Exit{Code: cannotStart, Message: "this node has no container runtime (docker or podman) to run the image in"})
	}
	s := local.Setting{
		Job: a.Job, Spec: job.Spec, Attempt: a, Node: node, Devices: found, Capability: capability, Token: token, Restarted: restarts,
		HeartbeatSteps: e.settings.heartbeatSteps, Base: os.Environ(), PythonPath: e.settings.pythonPath, Mounted: e.mountable(job.Spec),
	}
	if err := e.folders(&s); err != nil {
		return e.backend.Refuse(a.Job, a.Number, train.Exit{Code: cannotStart, Message: err.Error()})
	}
	if s.Ports, err = freePorts(max(len(found), 1)); err != nil {
		return fmt.Errorf("start %s: %w", a.Job, err)
	}
	return e.backend.Start(local.Compose(s, e.backend.Layout, e.bounds, local.Header(a, time.Now().UTC().Format(time.RFC3339))))
}

// cannotStart is the status that shells give for a program that cannot be run.
const cannotStart = 127

// mountable says whether a job sees its folders under their fixed names: always in a container, else where the machine allows it.
func (e *executor) mountable(spec train.Spec) bool {
	return spec.Image != "" || e.bounds.Sandbox != local.SandboxNone
}

func (e *executor) mounted(a train.Attempt) bool {
	e.picture.mu.Lock()
	defer e.picture.mu.Unlock()
	return e.mountable(e.picture.jobs[a.Job].Spec)
}

// freePorts finds ports that nobody listens on now. Between this and their use somebody else may take one; the attempt then fails to meet, and says so.
func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // nothing is waited for
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer func() { _ = l.Close() }()
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			ports[i] = a.Port
		}
	}
	return ports, nil
}

// kill records why, then has the processes ended.
func (e *executor) kill(ctx context.Context, action diff.Action, a train.Attempt) error {
	if a.Stop != action.Cause {
		a.Stop, a.StopSince = action.Cause, time.Now().UTC()
		if err := e.swap(ctx, a); err != nil {
			return err
		}
		e.log.Info("ending an attempt", "job", a.Job, "attempt", a.Number, "cause", a.Stop, "reason", action.Reason.Message)
	}
	return e.backend.Stop(a.Job, a.Number, e.settings.killAfter, time.Now())
}

// decide records what an exit means. The report is read anew: the agent stores that it told the code to stop before it does so.
func (e *executor) decide(ctx context.Context, a train.Attempt) error {
	report, job, err := e.known(ctx, a)
	if err != nil {
		return err
	}
	verdict := diff.Judge(a, report, job)
	a.Outcome, a.NotBefore = verdict.Outcome, time.Time{}
	if verdict.Outcome == train.OutcomeRecovering {
		a.NotBefore = time.Now().UTC().Add(verdict.Retry)
	}
	return e.swap(ctx, a)
}

// known reads what is told of an attempt and of its job.
func (e *executor) known(ctx context.Context, a train.Attempt) (train.AttemptReport, train.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	report, err := e.reports.Get(ctx, fmt.Sprintf("%s.%d", a.Job, a.Number))
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return report.Value, train.Job{}, err
	}
	e.picture.mu.Lock()
	job, found := e.picture.jobs[a.Job]
	e.picture.mu.Unlock()
	if found {
		return report.Value, job, nil
	}
	entry, err := e.jobs.Get(ctx, string(a.Job))
	if errors.Is(err, bus.ErrNotFound) {
		err = nil // the register lost it: what is known of the attempt is enough
	}
	return report.Value, entry.Value, err
}

// tell publishes a recorded outcome, records that it did, and forgets the attempt's files.
func (e *executor) tell(ctx context.Context, a train.Attempt) error {
	report, job, err := e.known(ctx, a)
	if err != nil {
		return err
	}
	verdict := diff.Details(a, report, job)
	if err := e.publish(ctx, endFact(a, verdict)); err != nil {
		return err
	}
	a.Told = true
	if err := e.swap(ctx, a); err != nil {
		return err
	}
	e.metrics.outcomes.WithLabelValues(string(a.Outcome)).Inc()
	e.log.Info("attempt ended", "job", a.Job, "attempt", a.Number, "outcome", a.Outcome, "epochs_done", verdict.EpochsDone)
	key := diff.ReportKey{Job: a.Job, Number: a.Number}
	delete(e.waiting, key)
	delete(e.claimedAt, key)
	delete(e.stopTold, key)
	delete(e.launches, key)
	return e.backend.Forget(a.Job, a.Number)
}

// cancel records the end of a job without processes. A job that was never tried gets a record for it, so that no start can come in between.
func (e *executor) cancel(ctx context.Context, action diff.Action, a train.Attempt) error {
	if a.Job == "" {
		a = train.Attempt{Job: action.Job, Node: e.node, Phase: train.PhaseExited}
	}
	a.Outcome, a.Told = train.OutcomeCancelled, false
	return e.swap(ctx, a)
}
