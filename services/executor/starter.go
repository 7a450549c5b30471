package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sourcegraph/conc"
	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/seal"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// starter claims attempts and starts their processes.
type starter struct {
	*shared
	backend backend
	realm   diff.Realm
	config  settings.Executor
	// claimedAt is when an attempt was claimed, tries how often its processes were started.
	claimedAt map[diff.ReportKey]time.Time
	tries     map[diff.ReportKey]launchTries
}

func newStarter(s *shared, b backend, realm diff.Realm, config settings.Executor) *starter {
	return &starter{
		shared: s, backend: b, realm: realm, config: config,
		claimedAt: map[diff.ReportKey]time.Time{}, tries: map[diff.ReportKey]launchTries{},
	}
}

func (s *starter) forget(key diff.ReportKey) {
	delete(s.claimedAt, key)
	delete(s.tries, key)
}

// observeLatency measures how long an attempt took from its claim to its start.
func (s *starter) observeLatency(a train.Attempt) {
	if at, known := s.claimedAt[diff.ReportKey{Job: a.Job, Number: a.Number}]; known {
		s.metrics.startLatency.Observe(a.StartedAt.Sub(at).Seconds())
	}
}

// parallelClaims is how many attempts are claimed at the same time. A claim waits for the disk of the bus, and on
// Kubernetes for that of the API server, too.
const parallelClaims = 16

// startAll claims attempts and starts the processes of each as soon as it is claimed, while others are still being
// claimed. An executor that finds a claim without processes starts them, so a crash in between loses nothing.
func (s *starter) startAll(ctx context.Context, starts []diff.Action) {
	claimed, errs, done := make([]train.Attempt, len(starts)), make([]error, len(starts)), make(chan int, len(starts))
	var claims conc.WaitGroup
	claims.Go(func() {
		defer close(done)
		group := pool.New().WithMaxGoroutines(parallelClaims)
		for i, action := range starts {
			group.Go(func() {
				claimed[i], errs[i] = s.claim(ctx, action)
				done <- i
			})
		}
		group.Wait()
	})
	for i := range done {
		a := claimed[i]
		s.retry(ctx, starts[i].Job, errs[i])
		if a.Job == "" {
			continue
		}
		s.claimedAt[diff.ReportKey{Job: a.Job, Number: a.Number}] = time.Now()
		s.metrics.starts.Inc()
		_, err := s.launchWithBackoff(ctx, a, launch.Status{})
		s.retry(ctx, a.Job, err)
	}
	claims.Wait()
}

// claim records the next attempt of a job. It claims nothing if the record has changed since the decision.
func (s *starter) claim(ctx context.Context, action diff.Action) (train.Attempt, error) {
	last, _ := s.cache.attempt(action.Job)
	if last.Job != "" && last.Number != action.Number-1 {
		return train.Attempt{}, nil
	}
	job, _ := s.cache.job(action.Job)
	a := train.Attempt{
		Job: action.Job, Number: action.Number, Backend: s.realm.Backend, Namespace: s.backend.Namespace(job.Spec), LogFormat: job.Spec.LogFormat, Generation: action.Generation, Phase: train.PhaseClaimed,
		StartedEpochs: action.StartedEpochs, StartedStep: action.StartedStep, CountsCheckpoints: action.CountsCheckpoints, LostInARow: action.LostInARow, Retries: action.Retries, UnstartedInARow: action.UnstartedInARow,
		Batch: action.Batch, BatchGeneration: action.Generation, Resumed: job.Resumed, Setting: s.cache.setting(action.Job),
		ClaimedAt: time.Now().UTC(),
	}
	if denied(last, a.Setting) {
		a.Setting, a.Stays = a.Setting.Without(train.SettingCores, train.SettingMemoryMiB), a.Setting.Generation
	}
	if a.SetPlaces(action.Places); a.Node != s.realm.Machine {
		a.Machine = s.realm.Machine
	}
	a.SetServers(action.Servers)
	places, err := s.cache.places(a)
	if err != nil {
		return train.Attempt{}, fmt.Errorf("start %s: %w", action.Job, err)
	}
	a.Enforcement = train.Weakest(launch.Setting{Places: places}.Devices())
	if last.Job == "" && job.Attempt == 0 {
		if err := s.backend.Vacate(action.Job); err != nil {
			return train.Attempt{}, fmt.Errorf("start %s: %w", action.Job, err)
		}
	}
	if a.Number > 1 && job.Saved() {
		found, err := s.backend.FindSaved(job, last)
		if err != nil {
			return train.Attempt{}, fmt.Errorf("start %s: %w", action.Job, err)
		}
		if !found {
			a.FromScratch, a.StartedEpochs, a.StartedStep = true, 0, 0
		}
	}
	return s.record(ctx, a)
}

// record makes the secrets of an attempt and records its claim. Without secrets, it ends before it starts: its end has
// the reason, and other jobs get its devices.
func (s *starter) record(ctx context.Context, a train.Attempt) (claimed train.Attempt, err error) {
	capability, token, err := s.backend.MakeSecrets(ctx, a)
	refused, isRefused := errors.AsType[*launch.RefusedError](err)
	if err != nil && !isRefused {
		return train.Attempt{}, fmt.Errorf("start %s: %w", a.Job, err)
	}
	a.CapabilityHash, a.TokenHash, a.MarkHash = train.Hash(capability), train.Hash(token), train.Hash(train.Mark(a.Job, a.Number, token))
	if err := s.swap(ctx, a); err != nil {
		return train.Attempt{}, fmt.Errorf("claim attempt %d of %s: %w", a.Number, a.Job, err)
	}
	if isRefused {
		return train.Attempt{}, s.backend.Refuse(ctx, a, refused.Exit)
	}
	return a, nil
}

// denied reports whether attempts must not be made with the processors and the memory of a setting, because the last
// one could not be made with them, or was made without them for that reason.
func denied(last train.Attempt, setting train.Setting) bool {
	forbidden := last.Exit != nil && last.Exit.Reason.Code == launch.Forbidden || last.Stays == setting.Generation
	return setting.Generation > 0 && last.Setting.Generation == setting.Generation && forbidden
}

// launchTries counts the attempts to start processes since one of them last appeared.
type launchTries struct {
	tries   int
	present int
	next    time.Time
}

// launchWithBackoff starts the processes of a claimed attempt unless they are being started. Failed tries are
// repeated with growing delays. again is the delay before the next look.
func (s *starter) launchWithBackoff(ctx context.Context, a train.Attempt, seen launch.Status) (again time.Duration, err error) {
	starting, why := s.backend.Starting(a)
	if starting {
		return seen.Again, nil
	}
	key, now := diff.ReportKey{Job: a.Job, Number: a.Number}, time.Now()
	l := s.tries[key]
	if seen.Present > l.present {
		l = launchTries{present: seen.Present}
	}
	if now.Before(l.next) {
		return l.next.Sub(now), nil
	}
	if l.tries > 0 && why != nil {
		s.faults.warn(ctx, "attempt is started again", a.Job, fmt.Errorf("attempt %d: %w", a.Number, why))
	}
	l.tries++
	again = diff.RetryDelay(l.tries)
	l.next = now.Add(again)
	s.tries[key] = l
	if seen.Again > 0 {
		again = min(again, seen.Again)
	}
	return again, s.launch(ctx, a)
}

// launch starts the processes of a claimed attempt. What can never work is recorded as its end; any other error is
// retried.
func (s *starter) launch(ctx context.Context, a train.Attempt) error {
	job, known := s.cache.job(a.Job)
	if !known {
		return fmt.Errorf("start %s: the register has no such job: %w", a.Job, bus.ErrNotFound)
	}
	err := s.keys.Check(job)
	if errors.Is(err, identity.ErrUnsealed) {
		return s.backend.Refuse(ctx, a, unsigned(err))
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", a.Job, err)
	}
	places, err := s.cache.places(a)
	if err != nil {
		return fmt.Errorf("start %s: %w", a.Job, err)
	}
	capability, token, err := s.backend.ReadSecrets(ctx, a)
	if err != nil {
		return fmt.Errorf("start %s: %w", a.Job, err)
	}
	if train.Hash(token) != a.TokenHash || train.Hash(capability) != a.CapabilityHash {
		// It was claimed with other secrets, or these were removed since: it is unknown whether it ran.
		return s.backend.Refuse(ctx, a, train.Exit{Lost: true})
	}
	secrets, err := s.backend.Secrets(ctx, job.Spec)
	if errors.Is(err, launch.ErrSecret) {
		return s.backend.Refuse(ctx, a, launch.SecretMissing(err))
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", a.Job, err)
	}
	err = s.backend.Start(ctx, launch.Setting{
		Job: a.Job, Spec: launch.Tuned(job.Spec, a), Signed: seal.Signed(job), Secrets: secrets, Attempt: a, Places: places, Capability: capability, Token: token, Restarted: s.cache.restarts(a),
		HeartbeatSteps: heartbeatSteps, Base: os.Environ(), Passed: s.config.JobEnvironment, PythonPath: s.config.PythonPath,
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", a.Job, err)
	}
	return nil
}

// unsigned is the end of an attempt that is never started.
func unsigned(err error) train.Exit {
	return train.Exit{Code: launch.CannotStart, Message: err.Error(), Reason: train.Reason{
		Code: "Unsigned", Message: err.Error(), Hint: "submit the job again; if that is refused too, compare admission.pub in the folders of keys of admission and executor",
	}}
}
