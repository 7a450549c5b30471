package tune

import (
	"cmp"
	"context"
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
			return withTruth(a, cmd, func(s profile.Store) error { return printProfiles(a, s) })
		},
	}
	cmd.AddCommand(
		&cobra.Command{
			Use: "export", Short: "Write the ground truth as JSON, for import elsewhere", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return withTruth(a, cmd, func(s profile.Store) error { return a.PrintJSON(s.Portable()) })
			},
		},
		&cobra.Command{
			Use: "import FILE|-", Short: "Replace the ground truth by an exported one, or add PipeTune's clusters to it", Args: cobra.ExactArgs(1),
			Long: `It changes what all experiments of the installation begin with, so it takes the key of an operator on the bus. The file is what ` + "`export`" + ` wrote, which replaces the ground truth, or a k-means model of PipeTune as JSON (cluster_centers, labels, feature_names), whose clusters
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
				return changeTruth(a, cmd, func(truth *contract.GroundTruth) { *truth = contract.GroundTruth(store) }, func() error {
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
	return changeTruth(a, cmd, func(truth *contract.GroundTruth) { truth.Given = contract.KindModel(model) }, func() error {
		if !given.Named() {
			fmt.Fprintf(a.Stderr, "its %s have no names: set feature_names to the events of the columns, so that measurements here can be compared with them\n", render.Plural(len(given.Names), "feature"))
		}
		_, err := fmt.Fprintf(a.Stdout, "%s of %s given\n", render.Plural(len(model.Clusters), "cluster"), render.Plural(len(given.Labels), "signature"))
		return err
	})
}

// withTruth runs f with the ground truth, which is empty at first.
func withTruth(a *console.Console, cmd *cobra.Command, f func(profile.Store) error) error {
	return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error {
		truth, err := y.GroundTruth(ctx)
		if err != nil {
			return err
		}
		return f(profile.Store(truth))
	})
}

// changeTruth changes the ground truth on the bus, then runs done.
func changeTruth(a *console.Console, cmd *cobra.Command, change func(*contract.GroundTruth), done func() error) error {
	return a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error {
		kv, err := console.OpenBucket(ctx, b, contract.Profiles)
		if err != nil {
			return err
		}
		_, err = kv.Modify(ctx, contract.ProfilesKey, func(truth *contract.GroundTruth) (bool, error) {
			before := *truth
			change(truth)
			return !reflect.DeepEqual(before, *truth), nil
		})
		if err != nil {
			return err
		}
		return done()
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
