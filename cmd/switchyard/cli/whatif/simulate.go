// Package whatif holds the commands simulate, replay and bundle: what-if questions, which the planner or a bundle
// answers, and recorded decisions.
package whatif

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/simrun"
)

// Commands returns simulate, replay and bundle.
func Commands() []console.Command {
	return []console.Command{simulateCommand, replayCommand, bundleCommand}
}

// simulateOptions are the flags of simulate.
type simulateOptions struct {
	fromBus  bool
	bundle   string
	since    time.Duration
	clusters []string
	addNodes int
	like     string
	policies []string
	interval time.Duration
	seed     uint64
	timeline string

	quotas      map[string]int
	powerBudget float64
}

func simulateCommand(a *console.Console) *cobra.Command {
	var o simulateOptions
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Simulate the recorded jobs with another policy, cluster or limit",
		Long: `Replays what a cluster has recorded in virtual time, with the planner's own code: what would another policy, two more nodes or other quotas have
done? What really happened stands beside it, and so does a simulation of the policy that decided, which shows how far simulations of this cluster
can be trusted. With --from-bus the planner answers, from what it knows; with --bundle this program simulates and needs no services.

Policies: ` + strings.Join(plan.PolicyNames(), ", ") + ` (default: the one that decided). Published traces and workloads are for switchyard-lab.`,
		Example: `  switchyard simulate --from-bus --since 24h --policy fifo,optimus
  switchyard simulate --bundle yesterday.tar.gz --add-nodes 2`,
		Args:              cobra.NoArgs,
		PersistentPreRunE: a.Accept("table", "json", "csv"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"traces", "workload", "interference"} {
				if cmd.Flags().Changed(name) {
					return exit.Errorf(exit.Usage, "run `switchyard-lab simulate` with the same flags", "simulate --%s: published traces and workloads are simulated by switchyard-lab", name)
				}
			}
			if !o.fromBus && o.bundle == "" {
				return exit.Errorf(exit.Usage, "published traces are simulated by switchyard-lab", "--from-bus, or --bundle FILE, is required")
			}
			if o.since < 0 {
				return exit.Errorf(exit.Usage, "switchyard simulate --from-bus --since 24h", "--since %s: want a time that has passed", o.since)
			}
			if err := CheckTimeline(o.timeline); err != nil {
				return err
			}
			return whatIf(a, cmd, o)
		},
	}
	o.flags(cmd)
	for _, name := range []string{"compare", "energy", "power-limit", "share", "batch", "tune", "search"} {
		cmd.AddCommand(console.MovedToLab("simulate", name))
	}
	return cmd
}

func (o *simulateOptions) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVar(&o.fromBus, "from-bus", false, "simulate the history of the live cluster")
	fs.StringVar(&o.bundle, "bundle", "", "simulate the history in this file of `switchyard bundle`")
	fs.DurationVar(&o.since, "since", 0, "with --from-bus: how far back to go (0: the whole history)")
	fs.StringArrayVar(&o.clusters, "cluster", nil, "nodes=N,gpus=M[,type=T] instead of the recorded nodes; once for each type of GPU")
	fs.IntVar(&o.addNodes, "add-nodes", 0, "number of nodes to add to the recorded ones")
	fs.StringVar(&o.like, "like", "", "the node that --add-nodes copies (default: the one with the most devices)")
	fs.StringSliceVar(&o.policies, "policy", nil, "policies, joined by commas")
	fs.StringToIntVar(&o.quotas, "quota", nil, "most devices that the jobs of a tenant may hold together, instead of the recorded quotas, as TENANT=DEVICES (repeatable)")
	fs.Float64Var(&o.powerBudget, "power-budget-watts", 0, "most power that all devices may be predicted to draw, instead of the recorded budget (0: no bound)")
	fs.DurationVar(&o.interval, "interval", time.Minute, "time between decisions (default: a hundredth of the median completion time)")
	fs.Uint64Var(&o.seed, "seed", 1, "seed of policies that search at random")
	fs.StringVar(&o.timeline, "timeline", "", "write each change of an allocation to this file, as CSV")
	for _, name := range []string{"traces", "workload", "interference"} {
		fs.String(name, "", "a flag of switchyard-lab simulate")
		_ = fs.MarkHidden(name)
	}
}

// CheckTimeline reports before a long run that its timeline cannot be written.
func CheckTimeline(path string) error {
	if path == "" {
		return nil
	}
	folder := filepath.Dir(path)
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return exit.Usagef("--timeline %s: there is no folder %s", path, folder)
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return exit.Usagef("--timeline %s: that is a folder", path)
	}
	return nil
}

// SimulationBar shows progress if a person looks at standard error.
func SimulationBar(a *console.Console) *simrun.Bar {
	if !render.IsTerminal(a.Stderr) {
		return nil
	}
	return simrun.NewBar(a.Stderr)
}
