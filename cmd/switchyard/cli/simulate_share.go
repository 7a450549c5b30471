package cli

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/sourcegraph/conc/pool"
	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/services/planner/sim/sharing"
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

// shareResult is what a policy made of a stream.
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
		Long: `Plays streams of jobs on equal GPUs of which each has at most two jobs, on step times that were measured in pairs (the layout of the measurements of Gavel,
OSDI'20). A job beside another advances at the rate that was measured of the two. Streams joined by commas come one after the other, each to empty GPUs, and
what a policy has learnt is kept from one to the next.

Policies: ` + strings.Join(sharing.PolicyNames(), ", ") + `. interference is the live planner's own rule, which starts knowing nothing of any pair; oracle reads
the measurements. docs/simulator.md tells the rules.`,
		Example: `  switchyard simulate share --throughputs gavel/derived --gpu v100 --gpus 20 --stream stream0-seed1.csv,stream1-seed1.csv --policy interference -o json
  switchyard simulate share --throughputs gavel/derived --gpu k80 --stream stream0-seed1.csv --policy exclusive,interference,oracle --memory unknown`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			table, streams, err := o.prepare()
			if err != nil {
				return err
			}
			results, err := o.play(cmd.Context(), table, streams)
			if err != nil {
				return runtime(err)
			}
			return a.writeShare(results)
		},
	}
	fs := cmd.Flags()
	throughputsFlags(cmd, &o.throughputs, &o.gpu)
	fs.IntVar(&o.gpus, "gpus", 20, "number of GPUs")
	fs.StringSliceVar(&o.streams, "stream", nil, "files of jobs (arrival_s, model, batch, solo_s), joined by commas: one after the other, what was learnt is kept")
	fs.StringSliceVar(&o.policies, "policy", nil, "policies, joined by commas")
	fs.StringVar(&o.memory, "memory", "declared", "what interference is told of jobs' memory: declared or unknown")
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
		return sharing.Table{}, failure(ExitUsage, "", "--throughputs and --gpu are required")
	}
	table, err := sharing.LoadTable(os.DirFS(folder), gpu)
	if err != nil {
		return table, failure(ExitUsage, "--throughputs names a folder with colocation-1gpu.csv, isolated.csv and declared_memory.csv", "--throughputs %s: %v", folder, err)
	}
	return table, nil
}

// prepare checks the flags and reads the files.
func (o *shareOptions) prepare() (table sharing.Table, streams [][]sharing.Job, err error) {
	if table, err = loadThroughputs(o.throughputs, o.gpu); err != nil {
		return table, nil, err
	}
	if len(o.streams) == 0 || len(o.policies) == 0 {
		return table, nil, failure(ExitUsage, "", "--stream and --policy are required")
	}
	if o.gpus < 1 || o.gpus > mostGPUs {
		return table, nil, failure(ExitUsage, "", "--gpus %d: want 1 to %d", o.gpus, mostGPUs)
	}
	if o.memory != "declared" && o.memory != "unknown" {
		return table, nil, failure(ExitUsage, "", "--memory %q: want declared or unknown", o.memory)
	}
	for _, name := range o.policies {
		if !slices.Contains(sharing.PolicyNames(), name) {
			return table, nil, failure(ExitUsage, nearName(name, sharing.PolicyNames()), "--policy %q: no such policy", name)
		}
	}
	for _, file := range o.streams {
		jobs, err := table.LoadStream(os.DirFS(filepath.Dir(file)), filepath.Base(file))
		if err != nil {
			return table, nil, failure(ExitUsage, "a stream has a job in each row, in the order of arrival", "--stream %s: %v", file, err)
		}
		streams = append(streams, jobs)
	}
	return table, streams, nil
}

// play runs the policies, as many at once as there are processors. Results are by policy, then by stream.
func (o *shareOptions) play(ctx context.Context, table sharing.Table, streams [][]sharing.Job) ([]shareResult, error) {
	results := make([]shareResult, len(o.policies)*len(streams))
	p := pool.New().WithContext(ctx).WithCancelOnError().WithMaxGoroutines(goruntime.GOMAXPROCS(0))
	for i, name := range o.policies {
		p.Go(func(ctx context.Context) error {
			policy := sharing.FindPolicy(name, table, o.memory == "declared")
			for k, jobs := range streams {
				if err := ctx.Err(); err != nil {
					return err
				}
				stream := strings.TrimSuffix(filepath.Base(o.streams[k]), ".csv")
				results[i*len(streams)+k] = shareResult{name, o.gpu, stream, sharing.Run(jobs, table, o.gpus, policy)}
			}
			return nil
		})
	}
	return results, p.Wait()
}

func (a *app) writeShare(results []shareResult) error {
	switch a.output {
	case "json":
		return a.printJSON(results)
	case "csv":
		return runtime(writeShareCSV(a.stdout, results))
	}
	return a.table("POLICY\tGPU\tSTREAM\tAVG JCT\tP99\tMAKESPAN\tSHARED\tEVICTED\tOUT OF MEMORY\tSLOWDOWN", func(w io.Writer) {
		for _, r := range results {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%.0f s\t%.0f s\t%.0f s\t%d\t%d\t%d\t%.2f\n", r.Policy, r.GPU, r.Stream, r.AvgJCTSeconds, r.P99JCTSeconds,
				r.MakespanSeconds, r.CoLocations, r.Evictions, r.OutOfMemoryKills, r.MeanSlowdown)
		}
	})
}

func writeShareCSV(out io.Writer, results []shareResult) error {
	lines := [][]string{{
		"policy", "gpu", "stream", "avg_jct_seconds", "p99_jct_seconds", "makespan_seconds", "oom_kills", "co_locations", "evictions", "mean_slowdown",
	}}
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	for _, r := range results {
		lines = append(lines, []string{
			r.Policy, r.GPU, r.Stream, number(r.AvgJCTSeconds), number(r.P99JCTSeconds), number(r.MakespanSeconds), strconv.Itoa(r.OutOfMemoryKills),
			strconv.Itoa(r.CoLocations), strconv.Itoa(r.Evictions), number(r.MeanSlowdown),
		})
	}
	return csv.NewWriter(out).WriteAll(lines)
}
