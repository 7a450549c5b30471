package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/jobs"
	"github.com/switchyard-dl/switchyard/lab/traces"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// workloadOptions are the flags of workload.
type workloadOptions struct {
	jobs    int
	gaps    string
	mix     string
	meanGap time.Duration
	seed    uint64
	// folder holds a job file for each application, named after it.
	folder string
	prefix string
	scale  float64
	// from is the file of a published trace.
	from string
}

func (a *app) workloadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "workload",
		Short: "Draw streams of jobs from published distributions, for the simulator or a live cluster",
		Long: `Draws jobs that arrive one after the other: gaps as in Microsoft's cluster Philly (most are short, a few very long), of a Poisson process, or in bursts; GPUs
as in Philly; applications in the mix of Pollux (OSDI'21). A seed gives the same stream every time, everywhere.`,
	}
	cmd.AddCommand(a.workloadGenerateCommand(), a.workloadSubmitCommand())
	return cmd
}

func (o *workloadOptions) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.IntVar(&o.jobs, "jobs", 100, "number of jobs")
	fs.StringVar(&o.from, "from", "", "`FILE` of a published trace, whose first jobs come in place of drawn ones: cluster_job_log of Philly, openb_pod_list or pai_task_table of Alibaba; --gaps and --mean-gap do not count then")
	fs.StringVar(&o.gaps, "gaps", "philly", "how gaps between arrivals are distributed: "+strings.Join(traces.GapNames(), ", "))
	fs.StringVar(&o.mix, "mix", "pollux", "which applications: "+strings.Join(traces.MixNames(), ", ")+" (jobs that allow sharing, for a live cluster)")
	fs.DurationVar(&o.meanGap, "mean-gap", 3*time.Minute, "mean time between arrivals")
	fs.Uint64Var(&o.seed, "seed", 1, "seed of the random draws")
	fs.StringVar(&o.folder, "job-files", "examples/jobs", "folder with a file APPLICATION.yaml for each application: what a live cluster runs for it")
	fs.StringVar(&o.prefix, "prefix", "", "what the ids of jobs begin with (default: wSEED-); an id that was submitted before is not submitted again")
}

func (a *app) workloadGenerateCommand() *cobra.Command {
	var o workloadOptions
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "Print a stream: -o csv for switchyard-lab simulate, -o json as events for any NATS client",
		Example: `  switchyard-lab workload generate --jobs 160 --mean-gap 3m --seed 7 -o csv > stream.csv
  switchyard-lab simulate --traces pollux/traces --workload stream.csv --policy fifo,switchyard
  switchyard-lab workload generate --jobs 20 --gaps bursts -o json --job-files examples/jobs`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			w, err := o.draw()
			if err != nil {
				return err
			}
			if a.Output == "csv" && o.mix == "sharing" {
				return exit.Errorf(exit.Usage, "-o json prints them as events; `switchyard-lab simulate share` has streams of its own", "--mix sharing: the simulator has no profiles of these applications")
			}
			if a.Output != "json" {
				return a.writeWorkload(w)
			}
			submissions, err := a.submissions(w, o)
			if err != nil {
				return err
			}
			return a.PrintJSON(submissions)
		},
	}
	o.flags(cmd)
	return cmd
}

func (a *app) workloadSubmitCommand() *cobra.Command {
	var o workloadOptions
	cmd := &cobra.Command{
		Use:   "submit",
		Short: "Submit the jobs of a stream to a live cluster, each when its time has come",
		Example: `  switchyard-lab workload submit --jobs 10 --scale 60
  switchyard-lab workload submit --jobs 20 --mix sharing --scale 60
  switchyard-lab workload submit --jobs 100 --gaps poisson --mean-gap 30s --job-files my-jobs`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !(o.scale > 0) {
				return exit.Usagef("--scale %g: want more than 0", o.scale)
			}
			w, err := o.draw()
			if err != nil {
				return err
			}
			submissions, err := a.submissions(w, o)
			if err != nil {
				return err
			}
			return a.submitInTime(cmd.Context(), submissions, o.scale)
		},
	}
	o.flags(cmd)
	cmd.Flags().Float64Var(&o.scale, "scale", 1, "how much faster than drawn the jobs come: 60 makes minutes seconds")
	return cmd
}

// draw draws the stream, and gives its jobs the ids that they have everywhere.
func (o *workloadOptions) draw() (traces.Workload, error) {
	w, err := o.arrivals()
	if err != nil {
		return w, exit.Usagef("%v", err)
	}
	prefix := o.prefix
	if prefix == "" {
		prefix = fmt.Sprintf("w%d-", o.seed)
	}
	for i := range w.Jobs {
		if w.Jobs[i].Name, err = train.ParseJobID(prefix + string(w.Jobs[i].Name)); err != nil {
			return w, exit.Usagef("--prefix %q: %v", o.prefix, err)
		}
	}
	return w, nil
}

// arrivals are drawn, or those of a trace.
func (o *workloadOptions) arrivals() (traces.Workload, error) {
	if o.from == "" {
		return traces.Draw{Jobs: o.jobs, Gaps: o.gaps, MeanGapSeconds: o.meanGap.Seconds(), Mix: o.mix, Seed: o.seed}.Workload()
	}
	data, err := os.ReadFile(o.from)
	if err != nil {
		return traces.Workload{}, fmt.Errorf("--from: %w", err)
	}
	return traces.Recorded(filepath.Base(o.from), data, o.jobs, o.mix, o.seed)
}

// submission is a job of a stream as a message on the bus.
type submission struct {
	AtSeconds float64    `json:"at_seconds"`
	Subject   string     `json:"subject"`
	Body      train.Spec `json:"body"`
	id        train.JobID
}

// submissions turn arrivals into messages, each from its application's job file. Jobs may be smaller than they ask,
// so that they can run anywhere; those whose file allows sharing keep the number in it.
func (a *app) submissions(w traces.Workload, o workloadOptions) ([]submission, error) {
	files := map[string]train.Spec{}
	list := make([]submission, len(w.Jobs))
	for i, j := range w.Jobs {
		spec, read := files[j.Application]
		if !read {
			var err error
			if spec, err = jobs.ReadSpecFile(a.Console, filepath.Join(o.folder, j.Application+".yaml")); err != nil {
				return nil, err
			}
			for _, dir := range spec.Folders() {
				if *dir != "" {
					if *dir, err = filepath.Abs(*dir); err != nil {
						return nil, exit.Usagef("--job-files: %v", err)
					}
				}
			}
			files[j.Application] = spec
		}
		spec.Name = string(j.Name)
		if !spec.AllowSharing { // which says itself how many it takes
			spec.MinDevices, spec.MaxDevices = 1, j.Devices
		}
		list[i] = submission{j.Seconds, event.JobSubject(j.Name, event.FactSubmitted).String(), spec, j.Name}
	}
	return list, nil
}

// submitInTime submits each job when its time has come. A job that is refused, or of which admission says nothing
// yet, does not keep the others.
func (a *app) submitInTime(ctx context.Context, list []submission, scale float64) error {
	b, err := a.Connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	start := time.Now()
	results := []jobs.SubmitResult{}
	failed := 0
	for _, s := range list {
		due := time.NewTimer(time.Until(start.Add(time.Duration(s.AtSeconds / scale * float64(time.Second)))))
		select {
		case <-ctx.Done():
			due.Stop()
			return ctx.Err()
		case <-due.C:
		}
		result, err := jobs.Submit(ctx, console.OnBus(b, time.Now), s.Body, s.id)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			failed++
			result.Message = err.Error()
			fmt.Fprintf(a.Stderr, "%v\n", err)
		case a.Output != "json":
			fmt.Fprintf(a.Stdout, "%s  %s %s\n", render.Duration(time.Since(start).Seconds()), s.id, result.State)
		}
		results = append(results, result)
	}
	if a.Output == "json" {
		if err := a.PrintJSON(results); err != nil {
			return err
		}
	}
	if failed > 0 {
		return exit.Errorf(exit.Failed, "", "%d of %s not admitted", failed, render.Plural(len(list), "job"))
	}
	return nil
}

// writeWorkload prints arrivals as the simulator reads them, or for a person.
func (a *app) writeWorkload(drawn traces.Workload) error {
	rows := [][]string{{"name", "time", "application", "num_replicas", "batch_size"}}
	for _, j := range drawn.Jobs {
		rows = append(rows, []string{string(j.Name), strconv.FormatFloat(j.Seconds, 'f', -1, 64), j.Application, strconv.Itoa(j.Devices), strconv.Itoa(j.Batch)})
	}
	return a.write(result{drawn, rows, "TIME\tJOB\tAPPLICATION\tGPUS\tBATCH", func(w io.Writer) {
		for _, j := range drawn.Jobs {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\n", render.Duration(j.Seconds), j.Name, j.Application, j.Devices, j.Batch)
		}
	}})
}
