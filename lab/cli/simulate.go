package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/whatif"
	"github.com/switchyard-dl/switchyard/lab/baselines"
	"github.com/switchyard-dl/switchyard/lab/traces"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
	"github.com/switchyard-dl/switchyard/services/planner/simrun"
)

// simulateOptions are the flags of simulate.
type simulateOptions struct {
	traces       string
	workloads    []string
	clusters     []string
	policies     []string
	interval     time.Duration
	seed         uint64
	fixedBatch   bool
	interference float64
	timeline     string
}

func (a *app) simulateCommand() *cobra.Command {
	var o simulateOptions
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Replay workloads on measured traces in virtual time, under one or several policies",
		Long: `Replays workloads in virtual time with the planner's own code, on measured step times and trainings (the layout of the traces of Pollux,
OSDI'21, and Sia, SOSP'23). Each policy runs on each workload; several runs go in parallel. A run depends on its flags and seed alone.

Policies on traces: ` + strings.Join(baselines.Names(), ", ") + `. docs/simulator.md describes what each of them knows.`,
		Example: `  switchyard-lab simulate --traces pollux/traces --workload workload-1.csv --policy tiresias,optimus -o table
  switchyard-lab simulate --traces pollux/traces --workload workload-1.csv+workload-2.csv --policy pollux -o json
  switchyard-lab simulate --traces sia/traces --workload philly/workload-1.csv --cluster nodes=6,gpus=4,type=aws --cluster nodes=3,gpus=8,type=rtx --policy fifo`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := o.prepare()
			if err != nil {
				return err
			}
			runs, err := a.simulate(cmd.Context(), s)
			if err != nil {
				return err
			}
			return a.writeResults(runs)
		},
	}
	o.flags(cmd)
	cmd.AddCommand(
		a.compareCommand(), a.simulateEnergyCommand(), a.simulateLimitCommand(), a.simulateShareCommand(), a.simulateBatchCommand(), a.simulateTuneCommand(),
		a.simulateSearchCommand(), a.simulateServersCommand(),
	)
	return cmd
}

func (o *simulateOptions) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&o.traces, "traces", "", "folder of the measured applications, one folder each")
	fs.StringSliceVar(&o.workloads, "workload", nil, "workload files, joined by commas; A.csv+B.csv is both at once, the jobs renamed to w1-.. and w2-..")
	fs.StringArrayVar(&o.clusters, "cluster", []string{"nodes=16,gpus=4"}, "nodes=N,gpus=M[,type=T]; once for each type of GPU")
	fs.StringSliceVar(&o.policies, "policy", nil, "policies, joined by commas")
	fs.DurationVar(&o.interval, "interval", time.Minute, "time between decisions")
	fs.Uint64Var(&o.seed, "seed", 1, "seed of policies that search at random")
	fs.Float64Var(&o.interference, "interference", 0, "share of its speed, 0 to 1, that a gang over several nodes loses on a node with another such gang")
	fs.BoolVar(&o.fixedBatch, "fixed-batch", false, "every job keeps the global batch that its user asked for")
	fs.StringVar(&o.timeline, "timeline", "", "write each change of an allocation to this file, as CSV")
}

// simulation is each policy on each workload.
type simulation struct {
	config    traces.Config
	workloads []traces.Workload
	policies  []plan.Policy
	// timeline is the file for each change of an allocation, or empty.
	timeline string
}

// configs are the simulations, in the order of the policies, then of the workloads.
func (s simulation) configs() ([]sim.Config, error) {
	var all []sim.Config
	for _, p := range s.policies {
		for _, w := range s.workloads {
			c := s.config
			c.Policy, c.Workload = p, w
			one, err := c.Simulation()
			if err != nil {
				return nil, err
			}
			all = append(all, one)
		}
	}
	return all, nil
}

// simulate runs everything, as many simulations at once as there are processors.
func (a *app) simulate(ctx context.Context, s simulation) ([]simrun.Run, error) {
	configs, err := s.configs()
	if err != nil {
		return nil, err
	}
	runs, err := simrun.All(ctx, configs, whatif.SimulationBar(a.Console))
	if err != nil {
		return nil, err
	}
	return runs, writeTimeline(s.timeline, runs)
}

// prepare checks the flags and loads the files.
func (o *simulateOptions) prepare() (simulation, error) {
	s := simulation{timeline: o.timeline}
	if err := whatif.CheckTimeline(o.timeline); err != nil {
		return s, err
	}
	if o.traces == "" || len(o.workloads) == 0 || len(o.policies) == 0 {
		return s, exit.Errorf(exit.Usage, "to simulate what a live cluster has recorded: `switchyard simulate --from-bus`", "--traces, --workload and --policy are required")
	}
	if o.interval < time.Second {
		return s, exit.Usagef("--interval %s: want 1s or more", o.interval)
	}
	if !(o.interference >= 0 && o.interference < 1) {
		return s, exit.Usagef("--interference %g: want 0 or more, and less than 1", o.interference)
	}
	s.config = traces.Config{FixedBatch: o.fixedBatch, IntervalSeconds: o.interval.Seconds(), Seed: o.seed, Interference: o.interference}
	for _, name := range o.policies {
		p, err := baselines.Find(name)
		if err != nil {
			return s, exit.Errorf(exit.Usage, nearName(name, baselines.Names()), "--policy %q: no such policy", name)
		}
		s.policies = append(s.policies, p)
	}
	for _, text := range o.clusters {
		p, err := sim.ParsePool(text)
		if err != nil {
			return s, exit.Errorf(exit.Usage, "for example --cluster nodes=16,gpus=4", "--cluster %v", err)
		}
		s.config.Pools = append(s.config.Pools, p)
	}
	var err error
	if s.config.Applications, err = loadApplications(o.traces); err != nil {
		return s, exit.Errorf(exit.Usage, "--traces names a folder with one folder for each application", "%v", err)
	}
	if s.config.Rules, err = chooseModels(s.config.Applications, s.config.Pools); err != nil {
		return s, err
	}
	s.workloads, err = loadWorkloads(o.workloads)
	return s, err
}

func nearName(name string, known []string) string {
	if near := train.NearMiss(name, known); near != "" {
		return "did you mean " + near + "?"
	}
	return "want one of " + strings.Join(known, ", ")
}

// chooseModels settles which step times each pool uses, and with them whose rules hold. Traces of a single unnamed
// type serve whatever type is named.
func chooseModels(apps map[string]*traces.Application, pools []sim.Pool) (traces.Rules, error) {
	known := map[string]bool{}
	for _, app := range apps {
		for model := range app.Steps {
			known[model] = true
		}
	}
	if len(known) == 1 && known[""] {
		if len(pools) > 1 {
			return traces.Rules{}, exit.Usagef("--cluster given %d times: these traces are of one type of GPU", len(pools))
		}
		pools[0].Model = ""
	}
	for _, p := range pools {
		if !known[p.Model] {
			return traces.Rules{}, exit.Errorf(exit.Usage, "types in these traces: "+strings.Join(names(known), ", "), "--cluster type=%q: no step times of such GPUs", p.Model)
		}
	}
	if pools[0].Model != "" {
		return traces.TypedRules(), nil
	}
	return traces.UntypedRules(), nil
}

func names(known map[string]bool) []string {
	var list []string
	for name := range known {
		if name != "" {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}
