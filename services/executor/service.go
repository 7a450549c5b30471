// Package executor acts: it compares the newest plan with the attempts on its machine and starts, stops and judges
// them. The service may be killed at any moment. The truth about an attempt is in its record in the bucket
// "attempts", changed by compare-and-swap, and in the files of its supervisor, so a new executor goes on where the
// last one stopped.
package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/jobfiles"
	"github.com/switchyard-dl/switchyard/libs/joblog"
	"github.com/switchyard-dl/switchyard/libs/look"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/upload"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
	"github.com/switchyard-dl/switchyard/services/executor/kube"
	"github.com/switchyard-dl/switchyard/services/executor/local"
	"github.com/switchyard-dl/switchyard/services/executor/local/cgroup"
	"github.com/switchyard-dl/switchyard/services/executor/local/prepare"
	"github.com/switchyard-dl/switchyard/services/executor/staging"
)

// heartbeatSteps is the number of training steps between two heartbeats of a job.
const heartbeatSteps = 10

// Service is the executor.
type Service struct{ config settings.Executor }

// New makes the service.
func New(c settings.Executor) *Service { return &Service{config: c} }

// Name returns executor.
func (s *Service) Name() string { return "executor" }

// Task returns the leader election task: one process serves all nodes of Kubernetes. A local executor owns its
// machine by a record (ownership) and needs no election.
func (s *Service) Task(run.Common) string {
	if s.config.Backend == settings.BackendKubernetes {
		return s.Name()
	}
	return ""
}

// Validate reads the folders of jobs that are pods.
func (s *Service) Validate(run.Common) error {
	if s.config.RunAs == settings.RunAsSubmitter && (s.config.Backend != settings.BackendLocal || len(s.config.JobEnvironment) > 0) {
		return errSubmitters
	}
	if s.config.Backend != settings.BackendKubernetes {
		return nil
	}
	return kube.Check(s.config.Kubernetes)
}

var errSubmitters = errors.New("executor.run_as: submitter is for jobs on this machine (backend: local), which get the variables of their users: leave job_environment out")

// Run works until ctx ends. Running jobs go on.
func (s *Service) Run(ctx context.Context, p run.Process) error {
	var err error
	p.Common.Keys = p.Common.KeysDir()
	if s.config.Backend == settings.BackendKubernetes {
		// Beside the folder of this machine's local executor, not in it: both may run here.
		p.Common.DataDir = filepath.Join(p.Common.DataDir, "kubernetes")
	} else if p.Common, err = run.SettleNode(p.Common); err != nil {
		return err
	}
	if err := allowRoot(s.config, os.Geteuid(), "/etc", p.Log); err != nil {
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
		return run.DropAtStop(ctx, err)
	}
	defer b.Close()
	owned, err := s.own(ctx, p, b)
	if err != nil {
		return run.DropAtStop(ctx, err)
	}
	on, err := s.openPlatform(ctx, p, b)
	if err != nil {
		return run.DropAtStop(ctx, err)
	}
	if on.local != nil {
		defer on.local.Close()
	}
	on.acts = owned.holds
	e, err := s.open(ctx, p, b, on)
	if err != nil {
		return run.DropAtStop(ctx, err)
	}
	plans := &planFollower{bus: b, log: p.Log, cache: e.cache, metrics: e.metrics}
	if plans.fence, err = openFence(p.Common.DataDir); err != nil {
		return run.DropAtStop(ctx, err)
	}
	defer func() { _ = plans.fence.file.Close() }()
	loops := pool.New().WithContext(ctx).WithCancelOnError().WithFirstError()
	e.buckets.watch(loops, e.cache)
	loops.Go(plans.run)
	loops.Go(owned.keep)
	if on.local != nil {
		loops.Go(func(ctx context.Context) error { return s.answerLogs(ctx, b, on, e.cache) })
		loops.Go(func(ctx context.Context) error { return answerFiles(ctx, b, on) })
		loops.Go(func(ctx context.Context) error { return answerTerminals(ctx, b, on, e.buckets) })
		loops.Go(func(ctx context.Context) error { on.local.Trash.Empty(ctx, p.Log); return nil })
	}
	if on.pods != nil {
		loops.Go(func(ctx context.Context) error { return recordConditions(ctx, on.pods, e.buckets.conditions) })
	}
	loops.Go(func(ctx context.Context) error { return on.backend.Run(ctx, e.cache.queue.add) })
	loops.Go(func(ctx context.Context) error { return e.loop(ctx, p.Started) })
	return run.DropAtStop(ctx, loops.Wait())
}

// answerLogs serves the logs of this machine's jobs. A job that has ended is dropped from the cache, or is about to be.
func (s *Service) answerLogs(ctx context.Context, b *bus.Bus, on platform, c *cache) error {
	return bus.Answer(ctx, b, rpc.LogSubject(on.realm.Machine), func(_ context.Context, r rpc.LogRequest) (rpc.LogChunk, error) {
		job, known := c.job(r.Job)
		return joblog.Answer(on.local.LayoutOf(r.Job), r, int64(s.config.JobLogLimit)<<20, !known || job.State.Terminal())
	})
}

// answerFiles serves the files of this machine's jobs. A job may have them on a file system that hangs: others get
// theirs.
func answerFiles(ctx context.Context, b *bus.Bus, on platform) error {
	type answered struct {
		rpc.FileAnswer
		err error
	}
	looks := look.New(func(r rpc.FileRequest) answered {
		answer, err := jobfiles.Answer(on.local.Layout, on.realm.Machine, r)
		return answered{answer, err}
	})
	return bus.Answer(ctx, b, rpc.FileSubject(on.realm.Machine), func(_ context.Context, r rpc.FileRequest) (rpc.FileAnswer, error) {
		if at := on.local.LayoutOf(r.Job); at.People { // else an executor that was taken over could read them
			return rpc.FileAnswer{}, fmt.Errorf("the files of job %s are its user's alone: look for them on %s, in %s and where it was started", r.Job, on.realm.Machine, at.Own(r.Job))
		}
		found, err := looks.At(r)
		if err != nil {
			return rpc.FileAnswer{}, fmt.Errorf("look for the files of job %s on %s: a file system there %w", r.Job, on.realm.Machine, err)
		}
		return found.FileAnswer, found.err
	})
}

// recordConditions records what the cluster says of its nodes.
func recordConditions(ctx context.Context, pods *kube.Backend, records *bus.KV[train.NodeCondition]) error {
	known := map[train.NodeID]train.NodeCondition{}
	for range tick.Every(ctx, time.Second) {
		entries, err := records.List(ctx)
		for _, e := range entries {
			known[train.NodeID(e.Key)] = e.Value
		}
		if err == nil {
			break
		}
	}
	return pods.RecordConditions(ctx, known, func(ctx context.Context, id train.NodeID, c train.NodeCondition) error {
		return records.Put(ctx, string(id), c)
	})
}

// platform is where attempts run.
type platform struct {
	backend backend
	realm   diff.Realm
	// local is the back end if it is that of this machine, pods if it is that of a cluster.
	local *local.Backend
	pods  *kube.Backend
	acts  func() bool
}

func (s *Service) openPlatform(ctx context.Context, p run.Process, b *bus.Bus) (platform, error) {
	if s.config.Backend == settings.BackendKubernetes {
		pods, err := kube.New(s.config.Kubernetes, s.terms(), s.config.KillAfter, p.Log)
		if err != nil {
			return platform{}, err
		}
		return platform{backend: pods, pods: pods, realm: diff.Realm{Realm: train.Realm{Backend: train.BackendKubernetes}}}, nil
	}
	here, err := s.openLocal(ctx, p, b)
	return platform{backend: here, realm: diff.Realm{Realm: train.Realm{Machine: p.Common.NodeID()}}, local: here}, err
}

func (s *Service) open(ctx context.Context, p run.Process, b *bus.Bus, on platform) (*executor, error) {
	kv, err := openBuckets(ctx, b)
	if err != nil {
		return nil, err
	}
	if !identity.Keys(p.Common.KeysDir()).Known() {
		p.Log.Warn("the bus knows nobody by a key: everybody who reaches it can start processes here", "keys", p.Common.KeysDir())
	}
	common := &shared{
		bus: b, log: p.Log, cache: newCache(on.realm), faults: newFaultLog(p.Log), metrics: newMetrics(p.Metrics), buckets: kv,
		keys: identity.Keys(p.Common.KeysDir()),
	}
	return newExecutor(common, on, s.config), nil
}

// terms are those on which data is fetched.
func (s *Service) terms() staging.Terms {
	return staging.Terms{
		Limit: int64(s.config.DataLimit) << 30, Policy: staging.Policy{Networks: s.config.DataNetworks(), WebHDFSPort: s.config.WebHDFSPort, S3: s.config.S3},
	}
}

// openLocal makes the back end of this machine.
func (s *Service) openLocal(ctx context.Context, p run.Process, b *bus.Bus) (*local.Backend, error) {
	processors, err := proc.Processors()
	if err != nil {
		return nil, err
	}
	bounds := prepare.Bounds{LogBytes: int64(s.config.JobLogLimit) << 20, KillAfterMillis: s.config.KillAfter.Milliseconds(), Processors: processors}
	if err := local.Tidy(p.Common.DataDir); err != nil {
		p.Log.Warn("leftovers of an earlier run not removed", "error", err)
	}
	supervisor, missing := local.FindSupervisor(ctx)
	if missing != nil {
		p.Log.Warn("this program supervises jobs itself, which costs each of them time and memory: install switchyard-supervisor beside it", "reason", missing)
	}
	asSubmitters := s.config.RunAs == settings.RunAsSubmitter
	if s.config.JobMounts == settings.MountsAuto && !asSubmitters {
		var reason error
		if bounds.Sandbox, reason, err = local.ProbeSandbox(ctx, supervisor, p.Common.DataDir); err != nil {
			return nil, err
		}
		if reason != nil {
			p.Log.Info("jobs find their folders through environment variables: this machine allows no mounts", "reason", reason)
		}
	}
	var reason error
	if asSubmitters {
		p.Log.Info("jobs run as the users who submit them", "launcher", s.config.Launcher)
	} else if bounds.Groups, reason = local.ProbeGroups(ctx, supervisor, cgroup.ThisMachine(), p.Common.DataDir); reason != nil {
		p.Log.Info("supervisors watch the memory of jobs themselves: this machine allows no control groups", "reason", reason)
	}
	here := local.New(p.Common.DataDir, supervisor, bounds)
	if asSubmitters {
		here.RunAsSubmitters(s.config.Launcher, s.config.JobsDir)
	}
	here.Data = staging.New(staging.Config{Dir: filepath.Join(p.Common.DataDir, "staged"), Reads: here.Reads, Terms: s.terms()})
	here.Uploads = func(ctx context.Context, person, hash string, read func(io.Reader) error) error {
		err := b.GetUpload(ctx, person, hash, read)
		if errors.Is(err, bus.ErrNotFound) {
			return fmt.Errorf("%w: the bus does not have it, or no more", upload.ErrRefused)
		}
		return err
	}
	return here, nil
}
