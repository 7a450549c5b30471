package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/services/experiments/conduct"
	"github.com/switchyard-dl/switchyard/services/experiments/profile"
)

func (a *app) tuneProfilesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profiles",
		Short: "Show what is known of workloads and their system parameters",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withProfiles(cmd, func(_ context.Context, _ *bus.KV[profile.Store], s profile.Store) error {
				return a.printProfiles(s)
			})
		},
	}
	cmd.AddCommand(
		&cobra.Command{
			Use: "export", Short: "Write the ground truth as JSON, for import elsewhere", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return a.withProfiles(cmd, func(_ context.Context, _ *bus.KV[profile.Store], s profile.Store) error {
					return a.printJSON(s)
				})
			},
		},
		&cobra.Command{
			Use: "import FILE|-", Short: "Replace the ground truth by an exported one", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				text, err := a.readJobFile(args[0])
				if err != nil {
					return err
				}
				store, err := profile.Decode(text)
				if err != nil {
					return failure(ExitUsage, "", "%s: %v", args[0], err)
				}
				return a.withProfiles(cmd, func(ctx context.Context, kv *bus.KV[profile.Store], _ profile.Store) error {
					if err := setProfiles(ctx, kv, store); err != nil {
						return err
					}
					_, err := fmt.Fprintf(a.stdout, "%s known\n", plural(len(store.Entries), "workload"))
					return err
				})
			},
		},
	)
	return cmd
}

// withProfiles runs f with the ground truth, which is empty at first.
func (a *app) withProfiles(cmd *cobra.Command, f func(context.Context, *bus.KV[profile.Store], profile.Store) error) error {
	return a.withBus(cmd, func(ctx context.Context, b *bus.Bus) error {
		kv, err := openBucket[profile.Store](ctx, b, event.BucketProfiles)
		if err != nil {
			return err
		}
		s, _, err := lastProfiles(ctx, kv)
		if err != nil {
			return err
		}
		return f(ctx, kv, s)
	})
}

func (a *app) printProfiles(s profile.Store) error {
	if a.output == "json" {
		return a.printJSON(s.Records())
	}
	return a.table("WORKLOAD\tKIND\tBATCH\tSETTING\tEPOCHS\tCOST", func(w io.Writer) {
		for _, r := range s.Records() {
			for _, m := range r.Measured {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%g\t%s\t%d\t%.4g\n", cell(r.Workload, 48), dash(r.Kind), r.BatchSize, cell(conduct.Words(m.Setting), 40), m.Epochs, m.Cost)
			}
		}
	})
}

// lastProfiles reads the ground truth; found is false before there is one.
func lastProfiles(ctx context.Context, kv *bus.KV[profile.Store]) (s profile.Store, found bool, err error) {
	e, err := kv.Get(ctx, event.ProfilesKey)
	if errors.Is(err, bus.ErrNotFound) {
		return profile.Store{}, false, nil
	}
	return e.Value, err == nil, err
}

// setProfiles replaces the ground truth, whatever it is.
func setProfiles(ctx context.Context, kv *bus.KV[profile.Store], s profile.Store) error {
	_, err := kv.Modify(ctx, event.ProfilesKey, func(there *profile.Store) (bool, error) {
		if reflect.DeepEqual(*there, s) {
			return false, nil
		}
		*there = s
		return true, nil
	})
	return err
}
