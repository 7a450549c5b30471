package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/jobs"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/services/experiments/conduct"
	"github.com/switchyard-dl/switchyard/services/experiments/profile"
)

func tuneProfilesCommand(a *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profiles",
		Short: "Show the ground truth: the best system parameters known for each workload",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withProfiles(a, cmd, func(_ context.Context, _ *bus.KV[contract.GroundTruth], s profile.Store) error {
				return printProfiles(a, s)
			})
		},
	}
	cmd.AddCommand(
		&cobra.Command{
			Use: "export", Short: "Write the ground truth as JSON, for import elsewhere", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return withProfiles(a, cmd, func(_ context.Context, _ *bus.KV[contract.GroundTruth], s profile.Store) error {
					return a.PrintJSON(s.Portable())
				})
			},
		},
		&cobra.Command{
			Use: "import FILE|-", Short: "Replace the ground truth by an exported one, or add PipeTune's clusters to it", Args: cobra.ExactArgs(1),
			Long: `The file is what ` + "`export`" + ` wrote, which replaces the ground truth, or a k-means model of PipeTune as JSON (cluster_centers, labels, feature_names), whose clusters
then take precedence over those found here.`,
			RunE: func(cmd *cobra.Command, args []string) error {
				text, err := jobs.ReadJobFile(a, args[0])
				if err != nil {
					return err
				}
				if profile.IsUpstream(text) {
					return importClusters(a, cmd, args[0], text)
				}
				store, err := profile.Decode(text)
				if err != nil {
					return exit.Usagef("%s: %v", args[0], err)
				}
				return withProfiles(a, cmd, func(ctx context.Context, kv *bus.KV[contract.GroundTruth], _ profile.Store) error {
					if err := setProfiles(ctx, kv, store); err != nil {
						return err
					}
					_, err := fmt.Fprintf(a.Stdout, "%s known\n", render.Plural(len(store.Entries), "workload"))
					return err
				})
			},
		},
	)
	return cmd
}

// importClusters adds clusters from another installation to the ground truth.
func importClusters(a *console.Console, cmd *cobra.Command, name string, text []byte) error {
	given, err := profile.DecodeUpstream(text)
	if err != nil {
		return exit.Usagef("%s: %v", name, err)
	}
	model := given.Model()
	return withProfiles(a, cmd, func(ctx context.Context, kv *bus.KV[contract.GroundTruth], s profile.Store) error {
		s.Given = contract.KindModel(model)
		if err := setProfiles(ctx, kv, s); err != nil {
			return err
		}
		if !given.Named() {
			fmt.Fprintf(a.Stderr, "its %s have no names: set feature_names to the events of the columns, so that measurements here can be compared with them\n", render.Plural(len(given.Names), "feature"))
		}
		_, err := fmt.Fprintf(a.Stdout, "%s of %s given\n", render.Plural(len(model.Clusters), "cluster"), render.Plural(len(given.Labels), "signature"))
		return err
	})
}

// withProfiles runs f with the ground truth, which is empty at first.
func withProfiles(a *console.Console, cmd *cobra.Command, f func(context.Context, *bus.KV[contract.GroundTruth], profile.Store) error) error {
	return a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error {
		kv, err := console.OpenBucket(ctx, b, contract.Profiles)
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

func printProfiles(a *console.Console, s profile.Store) error {
	return a.Show(s.Records(), "WORKLOAD\tKIND\tBATCH\tSETTING\tEPOCHS\tEPOCH COSTS\t", func(w io.Writer) {
		for _, r := range s.Records() {
			for _, m := range r.Measured {
				fmt.Fprintf(w, "%s\t%s\t%g\t%s\t%d\t%.4g %s\t%s\n", render.Cell(cmp.Or(r.Name, r.Workload), 48), render.Dash(r.Kind), r.BatchSize,
					render.Cell(conduct.Words(m.Setting), 40), m.Epochs, m.Cost, r.Unit, remark(r, m))
			}
		}
	})
}

// remark says what a setting is to its workload.
func remark(r contract.WorkloadCosts, m contract.MeasuredCost) string {
	var words []string
	if m.Setting.Equal(r.Default) {
		words = append(words, "default")
	}
	if slices.MinFunc(r.Measured, func(a, b contract.MeasuredCost) int { return cmp.Compare(a.Cost, b.Cost) }).Setting.Equal(m.Setting) {
		words = append(words, "best")
	}
	return strings.Join(words, ", ")
}

// lastProfiles reads the ground truth; found is false before there is one.
func lastProfiles(ctx context.Context, kv *bus.KV[contract.GroundTruth]) (s profile.Store, found bool, err error) {
	e, err := kv.Get(ctx, contract.ProfilesKey)
	if errors.Is(err, bus.ErrNotFound) {
		return profile.Store{}, false, nil
	}
	return profile.Store(e.Value), err == nil, err
}

// setProfiles replaces the ground truth, whatever it is.
func setProfiles(ctx context.Context, kv *bus.KV[contract.GroundTruth], s profile.Store) error {
	_, err := kv.Modify(ctx, contract.ProfilesKey, func(there *contract.GroundTruth) (bool, error) {
		if reflect.DeepEqual(*there, contract.GroundTruth(s)) {
			return false, nil
		}
		*there = contract.GroundTruth(s)
		return true, nil
	})
	return err
}
