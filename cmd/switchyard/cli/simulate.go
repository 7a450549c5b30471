package cli

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// simulateOptions are the flags of simulate.
type simulateOptions struct {
	traces       string
	workloads    []string
	clusters     []string
	policies     []string
	interval     time.Duration
	seed         uint64
	interference float64
	timeline     string
	whatIf       whatIfOptions
}

func (a *app) simulateCommand() *cobra.Command {
	var o simulateOptions
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Replay workloads on measured traces in virtual time, under one or several policies",
		Long: `Replays workloads in virtual time with the planner's own code, on step times and trainings that were measured once (the layout of the traces of Pollux,
OSDI'21, and Sia, SOSP'23). Each policy runs on each workload; several runs go in parallel. A run depends on its flags and seed alone.

With --from-bus or --bundle the workload is what the live cluster has recorded, and the policies are those of the live planner (` + strings.Join(plan.PolicyNames(), ", ") + `; default: the one
that decided): what would another policy, or two more nodes, have done? What really happened stands beside it, and so does what the
simulation makes of the policy that decided, which tells how far it can be trusted.

Policies on traces: ` + strings.Join(plan.PublishedNames(), ", ") + `. What each of them knows is told in docs/simulator.md.`,
		Example: `  switchyard simulate --traces pollux/traces --workload workload-1.csv --policy tiresias,optimus -o table
  switchyard simulate --traces pollux/traces --workload workload-1.csv+workload-2.csv --policy pollux -o json
  switchyard simulate --traces sia/traces --workload philly/workload-1.csv --cluster nodes=6,gpus=4,type=aws --cluster nodes=3,gpus=8,type=rtx --policy fifo
  switchyard simulate --from-bus --since 24h --policy fifo,optimus
  switchyard simulate --bundle yesterday.tar.gz --add-nodes 2`,
		Args: cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if !slices.Contains([]string{"table", "json", "csv"}, a.output) {
				return failure(ExitUsage, "", "-o %q: want table, json or csv", a.output)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.checkTimeline(); err != nil {
				return err
			}
			if o.whatIf.wanted() {
				return a.whatIf(cmd, o)
			}
			s, err := o.prepare()
			if err != nil {
				return err
			}
			runs, err := a.simulate(cmd.Context(), s)
			if err != nil {
				return runtime(err)
			}
			return a.writeResults(runs, o.timeline)
		},
	}
	o.flags(cmd)
	o.whatIf.flags(cmd)
	cmd.AddCommand(
		a.compareCommand(), a.simulateEnergyCommand(), a.simulateLimitCommand(), a.simulateShareCommand(), a.simulateBatchCommand(), a.simulateTuneCommand(),
		a.simulateSearchCommand(),
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
	fs.StringVar(&o.timeline, "timeline", "", "write each change of an allocation to this file, as CSV")
}

// simulation is what is to be run: each policy on each workload.
type simulation struct {
	config    sim.Config
	workloads []sim.Workload
	policies  []plan.Policy
}

// prepare checks the flags and loads the files.
func (o *simulateOptions) prepare() (simulation, error) {
	var s simulation
	if o.traces == "" || len(o.workloads) == 0 || len(o.policies) == 0 {
		return s, failure(ExitUsage, "or --from-bus, or --bundle FILE, for what a live cluster has recorded", "--traces, --workload and --policy are required")
	}
	if o.interval < time.Second {
		return s, failure(ExitUsage, "", "--interval %s: want 1s or more", o.interval)
	}
	if !(o.interference >= 0 && o.interference < 1) {
		return s, failure(ExitUsage, "", "--interference %g: want 0 or more, and less than 1", o.interference)
	}
	s.config = sim.Config{IntervalSeconds: o.interval.Seconds(), Seed: o.seed, Interference: o.interference}
	for _, name := range o.policies {
		p, err := plan.FindPublished(name)
		if err != nil {
			return s, failure(ExitUsage, nearName(name, plan.PublishedNames()), "--policy %q: no such policy", name)
		}
		s.policies = append(s.policies, p)
	}
	for _, text := range o.clusters {
		p, err := parsePool(text)
		if err != nil {
			return s, err
		}
		s.config.Pools = append(s.config.Pools, p)
	}
	var err error
	if s.config.Applications, err = loadApplications(o.traces); err != nil {
		return s, failure(ExitUsage, "--traces names a folder with one folder for each application", "%v", err)
	}
	if s.config.Rules, err = chooseModels(s.config.Applications, s.config.Pools); err != nil {
		return s, err
	}
	s.workloads, err = loadWorkloads(o.workloads)
	return s, err
}

// checkTimeline looks before a long run, not after it, whether its timeline can be written.
func (o *simulateOptions) checkTimeline() error {
	if o.timeline == "" {
		return nil
	}
	folder := filepath.Dir(o.timeline)
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return failure(ExitUsage, "", "--timeline %s: there is no folder %s", o.timeline, folder)
	}
	if info, err := os.Stat(o.timeline); err == nil && info.IsDir() {
		return failure(ExitUsage, "", "--timeline %s: that is a folder", o.timeline)
	}
	return nil
}

func nearName(name string, known []string) string {
	if near := train.NearMiss(name, known); near != "" {
		return "did you mean " + near + "?"
	}
	return "want one of " + strings.Join(known, ", ")
}

// mostGPUs is what a simulated cluster may have of one type: more would not fit into the memory of many machines.
const mostGPUs = 1_000_000

// parsePool reads nodes=16,gpus=4,type=aws.
func parsePool(text string) (sim.Pool, error) {
	p := sim.Pool{}
	wrong := func() (sim.Pool, error) {
		return p, failure(ExitUsage, "for example --cluster nodes=16,gpus=4", "--cluster %q: want nodes=N,gpus=M[,type=T], N and M at least 1", text)
	}
	for part := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		number, err := strconv.Atoi(value)
		whole := err == nil && number >= 1 && number <= math.MaxInt32
		switch {
		case key == "nodes" && whole:
			p.Nodes = number
		case key == "gpus" && whole:
			p.Devices = number
		case key == "type" && value != "":
			p.Model = value
		default:
			return wrong()
		}
	}
	if p.Nodes == 0 || p.Devices == 0 {
		return wrong()
	}
	if p.Nodes > mostGPUs || p.Devices > mostGPUs || p.Nodes*p.Devices > mostGPUs {
		return p, failure(ExitUsage, "", "--cluster %q: want at most %d GPUs", text, mostGPUs)
	}
	return p, nil
}

// chooseModels settles which step times each pool uses, and with them whose rules hold. Traces of a single unnamed type serve whatever type is named.
func chooseModels(apps map[string]*sim.Application, pools []sim.Pool) (sim.Rules, error) {
	known := map[string]bool{}
	for _, app := range apps {
		for model := range app.Steps {
			known[model] = true
		}
	}
	if len(known) == 1 && known[""] {
		if len(pools) > 1 {
			return sim.Rules{}, failure(ExitUsage, "", "--cluster given %d times: these traces are of one type of GPU", len(pools))
		}
		pools[0].Model = ""
	}
	for _, p := range pools {
		if !known[p.Model] {
			return sim.Rules{}, failure(ExitUsage, "types in these traces: "+strings.Join(names(known), ", "), "--cluster type=%q: no step times of such GPUs", p.Model)
		}
	}
	if pools[0].Model != "" {
		return sim.TypedRules(), nil
	}
	return sim.UntypedRules(), nil
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

// simulationProgress is the bar of a long run.
func simulationProgress(done, total int, elapsed time.Duration) string {
	const width = 30
	left := ""
	if done > 0 && done < total {
		rest := time.Duration(float64(elapsed) * float64(total-done) / float64(done))
		left = ", about " + duration(rest.Seconds()) + " left"
	}
	return fmt.Sprintf("%s %d of %d jobs%s", progressBar(done, total, width), done, total, left)
}
