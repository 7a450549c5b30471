package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/lab/sharing"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// shareOptions are the flags of simulate share.
type shareOptions struct {
	throughputs string
	gpu         string
	gpus        int
	streams     []string
	policies    []string
	memory      string
}

// shareResult is the result of a policy on a stream.
type shareResult struct {
	Policy string `json:"policy"`
	GPU    string `json:"gpu"`
	Stream string `json:"stream"`
	sharing.Result
}

func (a *app) simulateShareCommand() *cobra.Command {
	var o shareOptions
	cmd := &cobra.Command{
		Use:   "share",
		Short: "Play streams of jobs on GPUs that two of them may share, on step times measured in pairs",
		Long: `Plays streams of jobs on equal GPUs that at most two jobs share, on step times that were measured in pairs (the layout of the measurements of Gavel,
OSDI'20). A job beside another advances at the rate that was measured of the two. Streams joined by commas come one after the other, each to empty GPUs, and
what a policy has learnt is kept from one to the next.

Policies: ` + strings.Join(sharePolicies(), ", ") + `. interference is the live planner's own rule, which starts knowing nothing of any pair; oracle reads
the measurements. Those that begin with planner- are the live planner with all phases of its decisions, every 20 s; it knows the measured rates of pairs.
docs/simulator.md has the rules.`,
		Example: `  switchyard-lab simulate share --throughputs gavel/derived --gpu v100 --gpus 20 --stream stream0-seed1.csv,stream1-seed1.csv --policy interference -o json
  switchyard-lab simulate share --throughputs gavel/derived --gpu k80 --stream stream0-seed1.csv --policy exclusive,interference,oracle --memory unknown`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			table, streams, err := o.prepare()
			if err != nil {
				return err
			}
			results, err := o.play(cmd.Context(), table, streams)
			if err != nil {
				return err
			}
			return a.writeShare(results)
		},
	}
	fs := cmd.Flags()
	throughputsFlags(cmd, &o.throughputs, &o.gpu)
	fs.IntVar(&o.gpus, "gpus", 20, "number of GPUs")
	fs.StringSliceVar(&o.streams, "stream", nil, "files of jobs (arrival_s, model, batch, solo_s), joined by commas: one after the other, what was learnt is kept")
	fs.StringSliceVar(&o.policies, "policy", nil, "policies, joined by commas")
	fs.StringVar(&o.memory, "memory", "declared", "what interference knows of jobs' memory: declared or unknown")
	fs.Uint64("seed", 1, "seed of policies that search at random; none of these does")
	return cmd
}

// throughputsFlags are the flags that name measurements of pairs.
func throughputsFlags(cmd *cobra.Command, folder, gpu *string) {
	cmd.Flags().StringVar(folder, "throughputs", "", "folder with colocation-1gpu.csv, isolated.csv and declared_memory.csv")
	cmd.Flags().StringVar(gpu, "gpu", "", "type of GPU, as in the column gpu_type")
}

func loadThroughputs(folder, gpu string) (sharing.Table, error) {
	if folder == "" || gpu == "" {
		return sharing.Table{}, exit.Usagef("--throughputs and --gpu are required")
	}
	table, err := sharing.LoadTable(os.DirFS(folder), gpu)
	if err != nil {
		return table, exit.Errorf(exit.Usage, "--throughputs names a folder with colocation-1gpu.csv, isolated.csv and declared_memory.csv", "--throughputs %s: %v", folder, err)
	}
	return table, nil
}

// prepare checks the flags and reads the files.
func (o *shareOptions) prepare() (table sharing.Table, streams [][]sharing.Job, err error) {
	if table, err = loadThroughputs(o.throughputs, o.gpu); err != nil {
		return table, nil, err
	}
	if len(o.streams) == 0 || len(o.policies) == 0 {
		return table, nil, exit.Usagef("--stream and --policy are required")
	}
	if o.gpus < 1 || o.gpus > sim.MostDevices {
		return table, nil, exit.Usagef("--gpus %d: want 1 to %d", o.gpus, sim.MostDevices)
	}
	if o.memory != "declared" && o.memory != "unknown" {
		return table, nil, exit.Usagef("--memory %q: want declared or unknown", o.memory)
	}
	for _, name := range o.policies {
		if !slices.Contains(sharePolicies(), name) {
			return table, nil, exit.Errorf(exit.Usage, nearName(name, sharePolicies()), "--policy %q: no such policy", name)
		}
	}
	for _, file := range o.streams {
		jobs, err := table.LoadStream(os.DirFS(filepath.Dir(file)), filepath.Base(file))
		if err != nil {
			return table, nil, exit.Errorf(exit.Usage, "a stream has a job in each row, in the order of arrival", "--stream %s: %v", file, err)
		}
		streams = append(streams, jobs)
	}
	return table, streams, nil
}

// plannerInterval is the time between decisions of the live planner, in seconds.
const plannerInterval = 20

// sharePolicies are all that simulate share knows.
func sharePolicies() []string { return slices.Concat(sharing.PolicyNames(), sharing.PlannerNames()) }

// play runs the policies. Results are by policy, then by stream.
func (o *shareOptions) play(ctx context.Context, table sharing.Table, streams [][]sharing.Job) ([]shareResult, error) {
	results := make([]shareResult, len(o.policies)*len(streams))
	return results, each(ctx, len(o.policies), func(i int) error {
		policy := sharing.FindPolicy(o.policies[i], table, o.memory == "declared")
		for k, jobs := range streams {
			if err := ctx.Err(); err != nil {
				return err
			}
			var r sharing.Result
			var err error
			if policy != nil {
				r = sharing.Run(jobs, table, o.gpus, policy)
			} else if r, err = sharing.RunPlanner(jobs, sharing.Gangs{}, table, o.gpus, o.policies[i], plannerInterval); err != nil {
				return err
			}
			stream := strings.TrimSuffix(filepath.Base(o.streams[k]), ".csv")
			results[i*len(streams)+k] = shareResult{o.policies[i], o.gpu, stream, r}
		}
		return nil
	})
}

func (a *app) writeShare(results []shareResult) error {
	rows := [][]string{{
		"policy", "gpu", "stream", "avg_jct_seconds", "p99_jct_seconds", "makespan_seconds", "oom_kills", "co_locations", "evictions", "mean_slowdown",
	}}
	for _, r := range results {
		rows = append(rows, []string{
			r.Policy, r.GPU, r.Stream, render.Exactly(r.AvgJCTSeconds), render.Exactly(r.P99JCTSeconds), render.Exactly(r.MakespanSeconds), strconv.Itoa(r.OutOfMemoryKills),
			strconv.Itoa(r.CoLocations), strconv.Itoa(r.Evictions), render.Exactly(r.MeanSlowdown),
		})
	}
	return a.write(result{results, rows, "POLICY\tGPU\tSTREAM\tAVG JCT\tP99\tMAKESPAN\tSHARED\tEVICTED\tOUT OF MEMORY\tSLOWDOWN", func(w io.Writer) {
		for _, r := range results {
			fmt.Fprintf(w, "%s\t%s\t%s\t%.0f s\t%.0f s\t%.0f s\t%d\t%d\t%d\t%.2f\n", r.Policy, r.GPU, r.Stream, r.AvgJCTSeconds, r.P99JCTSeconds,
				r.MakespanSeconds, r.CoLocations, r.Evictions, r.OutOfMemoryKills, r.MeanSlowdown)
		}
	}})
}
