// Package executor acts: it compares the newest plan with the attempts that run on its machine and starts, stops and judges them. Every service may be
// killed at any moment: what is true of an attempt is in its record in the bucket "attempts", changed by compare-and-swap, and in the files of its supervisor,
// so a new executor goes on where the last one stopped.
package executor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/sourcegraph/conc/pool"
	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
	"github.com/switchyard-dl/switchyard/services/executor/kube"
	"github.com/switchyard-dl/switchyard/services/executor/local"
)

// Service is the executor.
type Service struct {
	stopGrace      time.Duration
	killAfter      time.Duration
	heartbeatSteps int
	pythonPath     string
	logLimitMiB    int64
	mounts         string
	backend        string
	kube           kube.Options
}

// New makes a service with its defaults.
func New() *Service { return &Service{} }

// Name is executor.
func (s *Service) Name() string { return "executor" }

// Task is to be done by one process for all nodes of Kubernetes; a local executor has its machine for itself, by a lock in its folder.
func (s *Service) Task(run.Common) string {
	if s.backend == backendKubernetes {
		return s.Name()
	}
	return ""
}

// Flags declares the service's own flags.
func (s *Service) Flags(fs *pflag.FlagSet) {
	fs.DurationVar(&s.stopGrace, "stop-grace", 10*time.Minute, "how long a job may take to leave at its epoch's end before it is killed (at least three of its epochs)")
	fs.DurationVar(&s.killAfter, "kill-after", 5*time.Second, "time between asking a job's processes to end (SIGTERM) and killing them")
	fs.IntVar(&s.heartbeatSteps, "heartbeat-steps", 10, "training steps between two heartbeats of a job")
	fs.StringVar(&s.pythonPath, "python-path", "", "folder that is added to the PYTHONPATH of jobs, e.g. the one with the switchyard package")
	fs.Int64Var(&s.logLimitMiB, "job-log-limit", 16, "size to which a job's log is kept, in MiB: its beginning and its end")
	fs.StringVar(&s.backend, "backend", backendLocal, "what runs jobs: local (processes of this machine) or kubernetes (pods on all nodes of a cluster)")
	s.kube.Flags(fs)
	fs.StringVar(&s.mounts, "job-mounts", "auto", "give jobs /custom, /snapshots and /data as mounts: auto (where the machine allows it) or never")
}

// Validate names every wrong setting at once.
func (s *Service) Validate(run.Common) error {
	var errs []error
	if s.stopGrace < 0 {
		errs = append(errs, fmt.Errorf("--stop-grace %s: want 0s or more", s.stopGrace))
	}
	if s.killAfter <= 0 {
		errs = append(errs, fmt.Errorf("--kill-after %s: want more than 0s", s.killAfter))
	}
	if s.heartbeatSteps < 1 {
		errs = append(errs, fmt.Errorf("--heartbeat-steps %d: want 1 or more", s.heartbeatSteps))
	}
	if s.pythonPath != "" && !filepath.IsAbs(s.pythonPath) {
		errs = append(errs, fmt.Errorf("--python-path %q: want an absolute path", s.pythonPath))
	}
	if s.logLimitMiB < 1 || s.logLimitMiB > 1<<20 {
		errs = append(errs, fmt.Errorf("--job-log-limit %d: want 1 or more MiB", s.logLimitMiB))
	}
	if s.mounts != "auto" && s.mounts != "never" {
		errs = append(errs, fmt.Errorf("--job-mounts %q: want auto or never", s.mounts))
	}
	switch s.backend {
	case backendLocal:
	case backendKubernetes:
		errs = append(errs, s.kube.Validate())
	default:
		errs = append(errs, fmt.Errorf("--backend %q: want local or kubernetes", s.backend))
	}
	return errors.Join(errs...)
}

// The values of --backend.
const (
	backendLocal      = "local"
	backendKubernetes = "kubernetes"
)

// Run works until ctx ends. Jobs that run then go on.
func (s *Service) Run(ctx context.Context, p run.Process) error {
	var err error
	if s.backend == backendKubernetes {
		// Beside the folder of an executor of the machine, not in it: both may run here.
		p.Common.DataDir = filepath.Join(p.Common.DataDir, "kubernetes")
	} else if p.Common, err = run.SettleNode(p.Common); err != nil {
		return err
	}
	unlock, err := run.Lock(ctx, filepath.Join(p.Common.DataDir, "executor.lock"), func() {
		p.Log.Info("standing by: another executor uses the data folder", "data_dir", p.Common.DataDir)
	})
	if err != nil {
		return err
	}
	defer unlock()
	b, err := p.Connect(ctx)
	if err != nil {
		return stopped(ctx, err)
	}
	defer b.Close()
	e, err := s.open(ctx, p, b)
	if err != nil {
		return stopped(ctx, err)
	}
	loops := pool.New().WithContext(ctx).WithCancelOnError().WithFirstError()
	look := e.picture
	loops.Go(func(ctx context.Context) error {
		return e.attempts.Watch(ctx, look.seeAttempt, look.saw(&look.complete.attempts, &look.orphans))
	})
	loops.Go(func(ctx context.Context) error { return e.jobs.Watch(ctx, look.seeJob, look.saw(&look.complete.jobs)) })
	loops.Go(func(ctx context.Context) error {
		return e.nodes.Watch(ctx, look.seeNode, look.saw(&look.complete.nodes))
	})
	loops.Go(func(ctx context.Context) error {
		return e.reports.Watch(ctx, look.seeReport, look.saw(&look.complete.reports))
	})
	loops.Go(func(ctx context.Context) error {
		return e.wishes.Watch(ctx, look.seeSetting, look.saw(&look.complete.settings))
	})
	loops.Go(e.followPlans)
	if e.machine != nil {
		loops.Go(func(ctx context.Context) error {
			return bus.Answer(ctx, b, train.LogSubject(e.realm.Node), e.answerLogs)
		})
	}
	loops.Go(func(ctx context.Context) error { return e.backend.Run(ctx, look.news) })
	loops.Go(func(ctx context.Context) error { return e.loop(ctx, p.Started) })
	return stopped(ctx, loops.Wait())
}

// stopped turns what a stop that was asked for leaves behind into nothing.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// open makes the executor with its buckets and settings.
func (s *Service) open(ctx context.Context, p run.Process, b *bus.Bus) (*executor, error) {
	fence, err := openFence(p.Common.DataDir)
	if err != nil {
		return nil, err
	}
	e := &executor{
		bus: b, log: p.Log, fence: fence, metrics: newMetrics(p.Metrics), limits: diff.Limits{StopGrace: s.stopGrace}, settings: *s,
		claimedAt: map[diff.ReportKey]time.Time{}, retunings: map[diff.ReportKey]retuning{},
		stopTold: map[diff.ReportKey]train.StopCause{}, launches: map[diff.ReportKey]launches{}, troubles: troubles{},
	}
	if s.backend == backendKubernetes {
		e.realm.Backend = train.BackendKubernetes
		e.backend, err = kube.New(ctx, s.kube, s.killAfter, p.Log)
	} else {
		e.realm.Node = p.Common.NodeID()
		e.machine, err = s.openMachine(ctx, p)
		e.backend = e.machine
	}
	if err != nil {
		return nil, err
	}
	e.picture = newPicture(e.realm)
	var errs [5]error
	e.attempts, errs[0] = bus.OpenKV[train.Attempt](ctx, b, event.BucketAttempts)
	e.jobs, errs[1] = bus.OpenKV[train.Job](ctx, b, event.BucketJobs)
	e.nodes, errs[2] = bus.OpenKV[train.Node](ctx, b, event.BucketNodes)
	e.reports, errs[3] = bus.OpenKV[train.AttemptReport](ctx, b, event.BucketReports)
	e.wishes, errs[4] = bus.OpenKV[train.Setting](ctx, b, event.BucketSettings)
	return e, errors.Join(errs[:]...)
}

// openMachine makes the back end of this machine.
func (s *Service) openMachine(ctx context.Context, p run.Process) (*local.Machine, error) {
	processors, err := proc.Processors()
	if err != nil {
		return nil, err
	}
	m := local.NewMachine(local.New(p.Common.DataDir), local.Bounds{
		LogBytes: s.logLimitMiB << 20, KillAfterMillis: s.killAfter.Milliseconds(), Processors: processors,
	})
	if err := m.Tidy(); err != nil {
		p.Log.Warn("leftovers of an earlier run not removed", "error", err)
	}
	if s.mounts != "auto" {
		return m, nil
	}
	reason, err := m.TryMounts(ctx)
	if reason != nil {
		p.Log.Info("jobs find their folders by environment variables: this machine allows no mounts", "reason", reason)
	}
	return m, err
}
