// Package admission is the front desk: it reads every fact of every job in the stream's order, accepts submissions or refuses them with all reasons, and
// keeps the register of jobs. It does not decide when or where a job runs.
package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/user"
	"path/filepath"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sourcegraph/conc/pool"
	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/fit"
)

// Service is the admission service.
type Service struct {
	roots    []string
	identity fit.Identity
	// keep is how long the record of an ended job stays; 0 is for ever.
	keep time.Duration
}

// New makes the service; its flags fill it.
func New() *Service { return &Service{} }

// Name is the service's name on the bus: the durable consumer has the same.
func (s *Service) Name() string { return "admission" }

// Task is the same for all processes: one at a time works.
func (s *Service) Task(run.Common) string { return s.Name() }

// Flags declares who submits and which folders jobs may use.
func (s *Service) Flags(fs *pflag.FlagSet) {
	fs.StringArrayVar(&s.roots, "allow-root", defaultRoots(), "folder below which jobs may have their folders (repeatable; --data-dir is always one)")
	fs.DurationVar(&s.keep, "keep-records", 90*24*time.Hour, "how long the register and the ledger keep a job that has ended (0: for ever)")
	fs.StringVar(&s.identity.User, "identity-user", operatingSystemUser(), "user of every submission that comes in here")
	fs.StringVar(&s.identity.Tenant, "identity-tenant", "default", "tenant of every submission that comes in here")
	fs.BoolVar(&s.identity.TrustBodies, "trust-bodies", false,
		"take user and tenant from a submission that names them: for people who share this bus and trust each other, since anybody can then submit as anybody")
}

// Validate names every wrong setting at once.
func (s *Service) Validate(run.Common) error {
	var errs []error
	for _, root := range s.roots {
		if !filepath.IsAbs(root) {
			errs = append(errs, fmt.Errorf("--allow-root %q: want an absolute path", root))
		}
	}
	if least := factsAge(); s.keep != 0 && s.keep < least {
		errs = append(errs, fmt.Errorf("--keep-records %s: want 0, or %s at least: for so long the facts of jobs are kept", s.keep, least))
	}
	for _, name := range []struct{ flag, value string }{{"--identity-user", s.identity.User}, {"--identity-tenant", s.identity.Tenant}} {
		if n := utf8.RuneCountInString(name.value); n < 1 || n > fit.MaxNameLength || !utf8.ValidString(name.value) || !printable(name.value) {
			errs = append(errs, fmt.Errorf("%s %q: want 1 to %d printable characters", name.flag, name.value, fit.MaxNameLength))
		}
	}
	return errors.Join(errs...)
}

// factsAge is how long the facts of jobs are kept.
func factsAge() time.Duration {
	for _, s := range event.Streams() {
		if s.Name == event.StreamJobs {
			return s.MaxAge
		}
	}
	return 0
}

func printable(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// Run consumes the facts of jobs until ctx ends.
func (s *Service) Run(ctx context.Context, p run.Process) error {
	b, err := p.Connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	jobs, err := bus.OpenKV[train.Job](ctx, b, event.BucketJobs)
	if err != nil {
		return err
	}
	nodes, err := bus.OpenKV[train.Node](ctx, b, event.BucketNodes)
	if err != nil {
		return err
	}
	d := newDesk(b, jobs, s.identity, append(s.roots, p.Common.DataDir), p.Log)
	d.meters.register(p.Metrics)
	nodesKnown, jobsKnown := newGate(), newGate()
	running := pool.New().WithContext(ctx).WithCancelOnError()
	running.Go(func(ctx context.Context) error { return nodes.Watch(ctx, d.lab.see, nodesKnown.open) })
	old := &retention{jobs: jobs, log: p.Log, keep: cmp.Or(s.keep, math.MaxInt64), old: map[string]uint64{}}
	running.Go(func(ctx context.Context) error {
		return jobs.Watch(ctx, func(e bus.Entry[train.Job], deleted bool) {
			d.line.see(e, deleted)
			old.see(time.Now(), e, deleted)
		}, jobsKnown.open)
	})
	running.Go(func(ctx context.Context) error {
		return housekeeping(ctx, b, old, &alarm{log: p.Log, meters: d.meters, rung: map[string]bool{}})
	})
	running.Go(func(ctx context.Context) error {
		// A verdict before the machines are known could only be too kind, and the first positions would be wrong.
		if !nodesKnown.wait(ctx) || !jobsKnown.wait(ctx) {
			return nil
		}
		p.Started()
		return b.Consume(ctx, bus.Consumer{Name: s.Name(), Stream: event.StreamJobs, Filters: []string{"yard.job.>"}, Handle: d.handle})
	})
	return running.Wait()
}

// defaultRoots are the folders where people keep code, data and results.
func defaultRoots() []string {
	roots := []string{"/data", "/home", "/mnt", "/srv", filepath.Clean(os.TempDir())}
	if home, err := os.UserHomeDir(); err == nil && filepath.IsAbs(home) && filepath.Clean(home) != "/" {
		roots = append(roots, filepath.Clean(home))
	}
	return roots
}

func operatingSystemUser() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return fmt.Sprintf("uid%d", os.Getuid())
}
