// Command switchyard-live compares a workload that the services have really run with what the simulator says of it. See
// docs/simulator.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/lab/live"
	"github.com/switchyard-dl/switchyard/lab/live/cluster"
	"github.com/switchyard-dl/switchyard/lab/live/trainer"
	"github.com/switchyard-dl/switchyard/lab/traces"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "switchyard-live: %v\n", err)
		stop()
		os.Exit(1)
	}
}

// bench is what the flags ask for.
type bench struct {
	live.Plan
	policies  []string
	bin, keep string
	simulate  float64
	out       io.Writer
}

func run(ctx context.Context, args []string, out io.Writer) error {
	b, err := read(args, out)
	if err != nil {
		return err
	}
	b.introduce()
	var rows []row
	for _, policy := range b.policies {
		r, err := b.compare(ctx, policy)
		if err != nil {
			return fmt.Errorf("policy %s: %w", policy, err)
		}
		rows = append(rows, r)
	}
	b.print(rows)
	return nil
}

func read(args []string, out io.Writer) (*bench, error) {
	b := &bench{out: out}
	flags := flag.NewFlagSet("switchyard-live", flag.ContinueOnError)
	root := flags.String("traces", "", "folder of Pollux's measurements, with the folders traces, derived and workloads")
	policies := flags.String("policies", "fifo,srtf,optimus,switchyard", "policies to run, joined by commas")
	count := flags.Int("jobs", 0, "number of jobs to run, the first to arrive (0: all)")
	flags.IntVar(&b.Nodes, "nodes", 8, "nodes of 4 devices")
	flags.Float64Var(&b.Factor, "factor", 60, "how much faster than measured to train, at most 60")
	flags.StringVar(&b.bin, "bin", "bin", "folder of the programs")
	flags.StringVar(&b.keep, "keep", "", "folder for the files of the runs (default: a temporary one, removed at the end)")
	flags.Float64Var(&b.simulate, "simulate", -1, "only simulate; the cost of a start, in seconds of the run")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if *root == "" || b.Nodes < 1 || !(b.Factor >= 1 && b.Factor <= 60) {
		return nil, errors.New("want --traces, at least one of --nodes, and a --factor from 1 to 60")
	}
	b.policies = strings.Split(*policies, ",")
	var err error
	if b.bin, err = filepath.Abs(b.bin); err != nil {
		return nil, err
	}
	if *root, err = filepath.Abs(*root); err != nil {
		return nil, err
	}
	if b.Applications, err = traces.Load(os.DirFS(*root), "traces", "derived"); err != nil {
		return nil, err
	}
	var all []traces.Workload
	for number := 1; number <= 3; number++ {
		name := fmt.Sprintf("workload-%d.csv", number)
		data, err := os.ReadFile(filepath.Join(*root, "workloads", name))
		if err != nil {
			return nil, err
		}
		w, err := traces.ParseWorkload(name, data)
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	b.Arrivals = live.First(live.EveryFourth(all...), *count)
	b.Trainer = []string{filepath.Join(b.bin, "switchyard-replay"), "--traces", *root}
	return b, nil
}

func (b *bench) introduce() {
	last := b.Arrivals[len(b.Arrivals)-1].Seconds
	fmt.Fprintf(b.out, "%d jobs within %.0f s, %d nodes of %d devices, %g times as fast as measured. All seconds are those of the run.\n",
		len(b.Arrivals), last/b.Factor, b.Nodes, live.DevicesPerNode, b.Factor)
}

// row is a policy, live and simulated.
type row struct {
	policy       string
	live, sim    live.Figures
	startSeconds float64
	// load is the mean load of the machine during the run.
	load float64
}

// compare runs a policy and simulates it at the cost of a start that was measured.
func (b *bench) compare(ctx context.Context, policy string) (row, error) {
	r, nodes := row{policy: policy, startSeconds: b.simulate}, b.AssumedNodes()
	if b.simulate < 0 {
		outcome, load, err := b.play(ctx, policy)
		if err != nil {
			return r, err
		}
		r.live, r.load, nodes = outcome.Figures(), load, outcome.Nodes
		r.startSeconds = outcome.startSeconds
	}
	c, err := b.Simulation(policy, nodes, r.startSeconds)
	if err != nil {
		return r, err
	}
	result, err := sim.Run(c)
	r.sim = live.Simulated(result)
	if err == nil && result.Completed != result.Jobs {
		err = fmt.Errorf("%d of %d jobs have ended in the simulation", result.Completed, result.Jobs)
	}
	b.report(r)
	return r, err
}

type played struct {
	live.Outcome
	startSeconds float64
}

func (b *bench) play(ctx context.Context, policy string) (played, float64, error) {
	dir, err := os.MkdirTemp(b.keep, policy+"-")
	if err != nil {
		return played{}, 0, err
	}
	if b.keep == "" {
		defer func() { _ = os.RemoveAll(dir) }()
	}
	ledger := filepath.Join(dir, "ledger.jsonl")
	with := b.Plan
	with.Trainer = append(slices.Clip(with.Trainer), "--ledger", ledger)
	jobs, err := with.Jobs(policy)
	if err != nil {
		return played{}, 0, err
	}
	c := cluster.Config{Bin: b.bin, Dir: dir, Nodes: b.Nodes, Policy: policy, Terms: b.Terms()}
	var p played
	meter := watchLoad(ctx)
	err = c.During(ctx, func(ctx context.Context, url string) (err error) {
		p.Outcome, err = c.Play(ctx, url, jobs, b.progress(policy, len(jobs)))
		return err
	})
	load := meter()
	if err != nil {
		return p, load, err
	}
	epochs, err := trainer.ReadLedger(ledger)
	if err != nil {
		return p, load, err
	}
	p.startSeconds = p.StartSeconds(epochs)
	return p, load, live.Check(jobs, epochs)
}

// progress shows how far a run is, on a terminal's one line.
func (b *bench) progress(policy string, total int) func(int) {
	began := time.Now()
	return func(done int) {
		fmt.Fprintf(os.Stderr, "\r\x1b[K%s: %d of %d jobs have ended after %.0f s", policy, done, total, time.Since(began).Seconds())
		if done == total {
			fmt.Fprint(os.Stderr, "\r\x1b[K")
		}
	}
}

// watchLoad samples the machine's load until the returned function is called, which returns the mean.
func watchLoad(ctx context.Context) func() float64 {
	ctx, stop := context.WithCancel(ctx)
	sum, count := 0.0, 0.0
	sample := func() {
		data, err := os.ReadFile("/proc/loadavg")
		if words := strings.Fields(string(data)); err == nil && len(words) > 0 {
			if x, err := strconv.ParseFloat(words[0], 64); err == nil {
				sum, count = sum+x, count+1
			}
		}
	}
	sampling := pool.New()
	sampling.Go(func() {
		ticker := time.NewTicker(5 * time.Second)
		defer ticker.Stop()
		for {
			sample()
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
	return func() float64 {
		stop()
		sampling.Wait()
		return sum / max(count, 1)
	}
}

// report prints a row as soon as it is known: a whole comparison takes long.
func (b *bench) report(r row) {
	fmt.Fprintf(b.out, "%-10s  simulated with starts of %.2f s (published: %.2f s): average %.1f s, p99 %.1f s, makespan %.1f s, %d restarts\n",
		r.policy, r.startSeconds, live.PublishedStartSeconds/b.Factor, r.sim.AvgSeconds, r.sim.P99Seconds, r.sim.MakespanSeconds, r.sim.Restarts)
	if b.simulate < 0 {
		fmt.Fprintf(b.out, "%-10s  live, at a mean load of %.1f: average %.1f s, p99 %.1f s, makespan %.1f s, %d restarts\n",
			"", r.load, r.live.AvgSeconds, r.live.P99Seconds, r.live.MakespanSeconds, r.live.Restarts)
	}
}

// print prints the table as Markdown.
func (b *bench) print(rows []row) {
	if b.simulate >= 0 {
		return
	}
	fmt.Fprintf(b.out, "\n| policy | average, live | simulated | | p99, live | simulated | makespan, live | simulated | restarts | a start, s | load |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(b.out, "| %s | %.1f | %.1f | %+.1f %% | %.1f | %.1f | %.1f | %.1f | %d, %d | %.2f | %.1f |\n", r.policy, r.live.AvgSeconds, r.sim.AvgSeconds,
			100*(r.live.AvgSeconds/r.sim.AvgSeconds-1), r.live.P99Seconds, r.sim.P99Seconds, r.live.MakespanSeconds, r.sim.MakespanSeconds,
			r.live.Restarts, r.sim.Restarts, r.startSeconds, r.load)
	}
}
