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
					return a.printJSON(s.Portable())
				})
			},
		},
		&cobra.Command{
			Use: "import FILE|-", Short: "Replace the ground truth by an exported one, or add PipeTune's clusters to it", Args: cobra.ExactArgs(1),
			Long: `The file is what ` + "`export`" + ` wrote, which replaces the ground truth, or a k-means model of PipeTune as JSON (cluster_centers, labels, feature_names), whose clusters
count from then on before those that were found here.`,
			RunE: func(cmd *cobra.Command, args []string) error {
				text, err := a.readJobFile(args[0])
				if err != nil {
					return err
				}
				if profile.IsUpstream(text) {
					return a.importClusters(cmd, args[0], text)
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

// importClusters adds clusters that were made elsewhere to the ground truth.
func (a *app) importClusters(cmd *cobra.Command, name string, text []byte) error {
	given, err := profile.DecodeUpstream(text)
	if err != nil {
		return failure(ExitUsage, "", "%s: %v", name, err)
	}
	model := given.Model()
	return a.withProfiles(cmd, func(ctx context.Context, kv *bus.KV[profile.Store], s profile.Store) error {
		s.Given = model
		if err := setProfiles(ctx, kv, s); err != nil {
			return err
		}
		if !given.Named() {
			_, _ = fmt.Fprintf(a.stderr, "its %s have no names: nothing that is measured here is compared with them before feature_names says which event each column counts\n", plural(len(given.Names), "feature"))
		}
		_, err := fmt.Fprintf(a.stdout, "%s of %s given\n", plural(len(model.Clusters), "cluster"), plural(len(given.Labels), "signature"))
		return err
	})
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
