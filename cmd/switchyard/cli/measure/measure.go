// Package measure holds the command that measures the speed of a job on several numbers of devices.
package measure

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/jobs"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// measureOptions are the flags of measure.
type measureOptions struct {
	template string
	set      []string
	servers  string
	workers  string
	epochs   int
	interval time.Duration
}

// scale is a number of workers, each with a device, and of parameter servers.
type scale struct {
	Workers int `json:"workers"`
	Servers int `json:"servers,omitempty"`
}

// mostScale bounds the workers and the servers of a scale.
const mostScale = 4096

// String is the scale in words.
func (s scale) String() string {
	if s.Servers == 0 {
		return render.Plural(s.Workers, "worker")
	}
	return render.Plural(s.Workers, "worker") + " and " + render.Plural(s.Servers, "server")
}

// Command makes the command of this package.
func Command(a *console.Console) *cobra.Command {
	var o measureOptions
	cmd := &cobra.Command{
		Use:   "measure FILE|--template NAME --workers 1..8 [--ps 1..4]",
		Short: "Run a job at several scales and measure its speed",
		Long: `Runs the job once for each number of workers (and of parameter servers), one run after the other, with exactly that many devices. It
prints progress, speed and processor use on standard error after the first epoch and at each interval, and at the end a table of the measured speeds
and those of the fitted model. The profiler learns from these runs: the next job with the same program, batch size and tenant starts with known speeds.
Measure on machines without other work, which would slow the job down.`,
		Example: `  switchyard measure job.yaml --workers 1..4
  switchyard measure --template mxnet-parameter-server --set name=resnet --set code=/home/ann/resnet --set batch_size=32 --set training_set_size=50000 \
      --set epochs=5 --ps 1,2,4 --workers 1..8 -o csv`,
		Args:              cobra.MaximumNArgs(1),
		PersistentPreRunE: a.Accept("table", "json", "csv"),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := measuredSpec(a, args, o)
			if err != nil {
				return err
			}
			scales, err := o.scales(spec)
			if err != nil {
				return err
			}
			return a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error { return measure(ctx, a, b, spec, scales, o.interval) })
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.template, "template", "", "template to make the job from, in place of a file")
	jobs.SettingsFlag(fs, &o.set)
	fs.StringVar(&o.servers, "ps", "", "numbers of parameter servers, as 1..4 or 1,2,4")
	fs.StringVar(&o.workers, "workers", "", "numbers of workers, as 1..8 or 1,2,4")
	fs.IntVar(&o.epochs, "epochs", 0, "epochs of each run (default: those of the job)")
	fs.DurationVar(&o.interval, "interval", 5*time.Minute, "time between progress lines")
	return cmd
}

// measuredSpec returns the job without stop rule and deadlines, which would end a run early. Its steps are those with
// which it would be trained on any number of devices; an adaptive batch stays at its base.
func measuredSpec(a *console.Console, args []string, o measureOptions) (train.Spec, error) {
	var spec train.Spec
	var err error
	switch {
	case (len(args) == 1) == (o.template != ""):
		return spec, exit.Usagef("want either a job file or --template NAME")
	case o.template == "" && len(o.set) > 0:
		return spec, exit.Usagef("--set is for templates")
	case o.template == "":
		spec, err = jobs.ReadSpecFile(a, args[0])
	default:
		var job []byte
		if job, err = jobs.RenderJob(a, o.template, o.set); err == nil {
			spec, err = jobs.DecodeSpec(o.template, job)
		}
	}
	if err != nil {
		return spec, err
	}
	if o.epochs < 0 || o.interval <= 0 {
		return spec, exit.Usagef("--epochs %d, --interval %s: want more than 0", o.epochs, o.interval)
	}
	if o.epochs > 0 {
		spec.MaxEpochs = o.epochs
	}
	spec = jobs.Named(spec).Expanded()
	spec.GlobalBatchSize = spec.WithDefaults().WithGlobalBatch().GlobalBatchSize
	spec.Stop, spec.Deadline, spec.TimeLimit, spec.EstimatedHours, spec.Energy, spec.AdaptiveBatch = nil, nil, 0, 0, nil, nil
	return spec, nil
}

// scales returns the scales to run at, ordered by servers. It refuses scales that the job cannot have.
func (o measureOptions) scales(spec train.Spec) ([]scale, error) {
	if o.workers == "" {
		return nil, exit.Errorf(exit.Usage, "e.g. --workers 1..4", "want --workers")
	}
	workers, err := console.Numbers("--workers", o.workers, mostScale)
	if err != nil {
		return nil, err
	}
	if most := slices.Max(workers); most > 1 && (spec.SingleDevice || spec.Strategy == train.StrategyNone) {
		return nil, exit.Errorf(exit.Usage, "use strategy all_reduce or parameter_server, if the code can do that", "--workers %s: the job runs on one device", o.workers)
	}
	servers := []int{0}
	switch {
	case spec.Strategy == train.StrategyParameterServer && o.servers == "":
		servers = []int{max(spec.WithDefaults().ParameterServers.Max, 1)}
	case spec.Strategy == train.StrategyParameterServer:
		if servers, err = console.Numbers("--ps", o.servers, mostScale); err != nil {
			return nil, err
		}
	case o.servers != "":
		return nil, exit.Errorf(exit.Usage, "leave --ps out, or use strategy parameter_server", "--ps %s: the job has no parameter servers", o.servers)
	}
	var scales []scale
	for _, p := range servers {
		for _, w := range workers {
			scales = append(scales, scale{Workers: w, Servers: p})
		}
	}
	return scales, nil
}

// at is the job at a scale.
func (s scale) at(spec train.Spec) train.Spec {
	spec.MinDevices, spec.MaxDevices = s.Workers, s.Workers
	if s.Servers > 0 {
		servers := train.ServersSpec{}
		if spec.ParameterServers != nil {
			servers = *spec.ParameterServers
		}
		servers.Max = s.Servers
		spec.ParameterServers = &servers
	}
	suffix := fmt.Sprintf("-w%d", s.Workers)
	if s.Servers > 0 {
		suffix += fmt.Sprintf("-p%d", s.Servers)
	}
	const longest = 63
	name := []rune(spec.Name)
	spec.Name = string(name[:min(len(name), longest-len(suffix))]) + suffix
	return spec
}
