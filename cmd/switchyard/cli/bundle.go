package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/history"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/services/planner"
)

func (a *app) bundleCommand() *cobra.Command {
	var since time.Duration
	var out string
	var unredacted bool
	cmd := &cobra.Command{
		Use:   "bundle --out FILE.tar.gz",
		Short: "Write what the bus remembers into one file, for `simulate` and `replay` elsewhere",
		Long: `Writes the facts of the jobs that were not over when the stretch of time began, the plans, what each plan was decided on, nodes and learned models into a
tar.gz of JSON files. Values of environment variables, arguments of commands, output of jobs and words of cancellations are left out, since they may be
secrets; names of jobs, people, variables and folders are in it.`,
		Example: `  switchyard bundle --since 24h --out yesterday.tar.gz
  switchyard simulate --bundle yesterday.tar.gz --policy fifo --add-nodes 2
  switchyard replay --bundle yesterday.tar.gz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" || since < 0 {
				return failure(ExitUsage, "switchyard bundle --since 24h --out FILE.tar.gz", "--out %q, --since %s: want a file and a time that has passed", out, since)
			}
			return a.withBus(cmd, func(ctx context.Context, b *bus.Bus) error {
				return a.bundle(ctx, b, out, since, unredacted)
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&out, "out", "", "file to write")
	fs.DurationVar(&since, "since", 0, "how far back to go (0: as far as the bus remembers)")
	fs.BoolVar(&unredacted, "unredacted", false, "leave in what may be secret")
	return cmd
}

// sinceTime is the moment so long ago; zero for 0.
func sinceTime(now time.Time, ago time.Duration) time.Time {
	if ago == 0 {
		return time.Time{}
	}
	return now.Add(-ago)
}

func (a *app) bundle(ctx context.Context, b *bus.Bus, out string, since time.Duration, unredacted bool) error {
	now := time.Now()
	h, err := history.FromBus(ctx, b, sinceTime(now, since), now.UTC())
	if err != nil {
		return err
	}
	a.tellUnreadable(h)
	// Beside its place first: a file that exists is whole.
	f, err := os.CreateTemp(filepath.Dir(out), ".bundle-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	inputs, err := writeBundle(ctx, b, f, h, unredacted)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	if err := os.Rename(f.Name(), out); err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	info, err := os.Stat(out)
	if err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	_, err = fmt.Fprintf(a.stdout, "%s: %s of jobs, %s, %s that can be replayed, %s; %.1f MiB\n", out, plural(len(h.Facts), "fact"), plural(len(h.Plans), "plan"),
		plural(inputs, "decision"), plural(len(h.Nodes), "node"), float64(info.Size())/(1<<20))
	return err
}

func writeBundle(ctx context.Context, b *bus.Bus, f *os.File, h history.History, unredacted bool) (inputs int, err error) {
	w, err := history.NewWriter(f, h, !unredacted)
	if err != nil {
		return 0, err
	}
	var failed error
	err = planner.ReadInputs(ctx, b, h.Since, func(in planner.Input, err error) {
		if err == nil && failed == nil {
			failed = w.Input(in)
			inputs++
		}
	})
	return inputs, errors.Join(err, failed, w.Close())
}

// readBundle opens a bundle with the input of a generation (0: the newest).
func (a *app) readBundle(path string, generation uint64) (history.History, error) {
	f, err := os.Open(path)
	if err != nil {
		return history.History{}, failure(ExitUsage, "`switchyard bundle --out FILE` writes one", "--bundle: %v", err)
	}
	defer func() { _ = f.Close() }()
	h, err := history.ReadBundle(f, generation)
	if err != nil {
		return h, failure(ExitError, "", "%s: %v", path, err)
	}
	a.tellUnreadable(h)
	return h, nil
}

func (a *app) tellUnreadable(h history.History) {
	for _, err := range h.Unreadable {
		_, _ = fmt.Fprintf(a.stderr, "passed over: %v\n", err)
	}
}
