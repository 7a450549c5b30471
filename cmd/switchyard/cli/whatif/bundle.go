package whatif

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
	"github.com/switchyard-dl/switchyard/services/planner/history"
)

func bundleCommand(a *console.Console) *cobra.Command {
	var since time.Duration
	var out string
	var unredacted bool
	cmd := &cobra.Command{
		Use:   "bundle --out FILE.tar.gz",
		Short: "Write the history on the bus into one file, for `simulate` and `replay` elsewhere",
		Long: `Writes the facts of the jobs that were not over when the stretch of time began, the plans, what each plan was decided on, nodes and learned models into a
tar.gz of JSON files. Values of environment variables, arguments of commands, output of jobs and words of cancellations are left out, since they may be
secrets; names of jobs, people, variables and folders are in it.`,
		Example: `  switchyard bundle --since 24h --out yesterday.tar.gz
  switchyard simulate --bundle yesterday.tar.gz --policy fifo --add-nodes 2
  switchyard replay --bundle yesterday.tar.gz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" || since < 0 {
				return exit.Errorf(exit.Usage, "switchyard bundle --since 24h --out FILE.tar.gz", "--out %q, --since %s: want a file and a time that has passed", out, since)
			}
			return a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error {
				return bundle(ctx, a, b, out, since, unredacted)
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&out, "out", "", "file to write")
	fs.DurationVar(&since, "since", 0, "how far back to go (0: the whole history)")
	fs.BoolVar(&unredacted, "unredacted", false, "keep values that may be secret")
	return cmd
}

// sinceTime returns the moment a duration ago, or the zero time for 0.
func sinceTime(now time.Time, ago time.Duration) time.Time {
	if ago == 0 {
		return time.Time{}
	}
	return now.Add(-ago)
}

func bundle(ctx context.Context, a *console.Console, b *bus.Bus, out string, since time.Duration, unredacted bool) error {
	now := time.Now()
	h, err := history.FromBus(ctx, b, sinceTime(now, since), now.UTC())
	if err != nil {
		return err
	}
	tellUnreadable(a, h)
	// Write beside the target first, so that a file that exists is complete.
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
	_, err = fmt.Fprintf(a.Stdout, "%s: %s of jobs, %s, %s that can be replayed, %s; %.1f MiB\n", out, render.Plural(len(h.Facts), "fact"), render.Plural(len(h.Plans), "plan"),
		render.Plural(inputs, "decision"), render.Plural(len(h.Nodes), "node"), float64(info.Size())/(1<<20))
	return err
}

func writeBundle(ctx context.Context, b *bus.Bus, f *os.File, h history.History, unredacted bool) (inputs int, err error) {
	w, err := history.NewWriter(f, h, !unredacted)
	if err != nil {
		return 0, err
	}
	var failed error
	err = decision.ReadInputs(ctx, b, h.Since, func(in decision.Input, err error) {
		if err == nil && failed == nil {
			failed = w.Input(in)
			inputs++
		}
	})
	return inputs, errors.Join(err, failed, w.Close())
}

// readBundle opens a bundle with the recorded input of a generation (0: the newest).
func readBundle(a *console.Console, path string, generation uint64) (history.History, error) {
	f, err := os.Open(path)
	if err != nil {
		return history.History{}, exit.Errorf(exit.Usage, "`switchyard bundle --out FILE` writes one", "--bundle: %v", err)
	}
	defer func() { _ = f.Close() }()
	h, err := history.ReadBundle(f, generation)
	if err != nil {
		return h, exit.Errorf(exit.Failed, "", "%s: %v", path, err)
	}
	tellUnreadable(a, h)
	return h, nil
}

func tellUnreadable(a *console.Console, h history.History) {
	for _, err := range h.Unreadable {
		fmt.Fprintf(a.Stderr, "passed over: %v\n", err)
	}
}
