package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/lab/recurring"
	"github.com/switchyard-dl/switchyard/libs/render"
)

// energyOptions are the flags of simulate energy.
type energyOptions struct {
	data  string
	gpus  []string
	seeds int
	eta   float64
}

// energyResult is what simulate energy prints as JSON.
type energyResult struct {
	Rows      []recurring.Row              `json:"rows"`
	Aggregate map[string]recurring.Figures `json:"aggregate"`
}

func (a *app) simulateEnergyCommand() *cobra.Command {
	var o energyOptions
	cmd := &cobra.Command{
		Use:   "energy",
		Short: "Replay jobs that recur on measured trainings: which batch sizes and power limits would have been chosen, at what energy and time",
		Long: `Replays jobs that come again and again, on trainings and power that were measured once (the layout of the traces of Zeus, NSDI'23), once for each policy
that chooses batch sizes and power limits. Every training comes twice for each of its batch sizes and power limits. Ratios are to what the
user's own batch size at the highest limit is expected to take; the regret is what was paid beyond the cheapest configuration, in runs of it.`,
		Example: `  switchyard-lab simulate energy --data zeus --gpu v100,a40 --seeds 20 --eta 0.5 -o json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			trainings, err := o.prepare()
			if err != nil {
				return err
			}
			rows, err := replayEnergy(cmd.Context(), trainings, o)
			if err != nil {
				return err
			}
			return a.writeEnergy(energyResult{rows, recurring.ByPolicy(rows)})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.data, "data", "", "folder whose folder trace holds summary_train.csv and summary_power_GPU.csv")
	fs.StringSliceVar(&o.gpus, "gpu", nil, "types of GPU, joined by commas")
	fs.IntVar(&o.seeds, "seeds", 20, "how often each training is replayed")
	fs.Float64Var(&o.eta, "eta", 0.5, "what energy weighs against time, 0 (time) to 1 (energy)")
	return cmd
}

func checkEta(eta float64) error {
	if !(eta >= 0 && eta <= 1) {
		return exit.Usagef("--eta %g: want 0 (time) to 1 (energy)", eta)
	}
	return nil
}

// prepare checks the flags and reads the files.
func (o *energyOptions) prepare() ([]recurring.Training, error) {
	if o.data == "" || len(o.gpus) == 0 {
		return nil, exit.Usagef("--data and --gpu are required")
	}
	if o.seeds < 1 {
		return nil, exit.Usagef("--seeds %d: want 1 or more", o.seeds)
	}
	if err := checkEta(o.eta); err != nil {
		return nil, err
	}
	var all []recurring.Training
	for _, gpu := range o.gpus {
		trainings, err := recurring.Load(os.DirFS(filepath.Join(o.data, "trace")), strings.ToLower(gpu))
		if err != nil {
			return nil, exit.Errorf(exit.Usage, o.advice(err), "--data %s, --gpu %s: %v", o.data, gpu, err)
		}
		all = append(all, trainings...)
	}
	if len(all) == 0 {
		return nil, exit.Errorf(exit.Usage, "their datasets, networks and optimizers must be named as in the traces of Zeus", "--data %s, --gpu %s: none of the published trainings was measured", o.data, strings.Join(o.gpus, ","))
	}
	return all, nil
}

// advice says what to do about files that cannot be read.
func (o *energyOptions) advice(err error) string {
	if !errors.Is(err, fs.ErrNotExist) {
		return "the files are laid out like the traces of Zeus"
	}
	const before, after = "summary_power_", ".csv"
	files, _ := filepath.Glob(filepath.Join(o.data, "trace", before+"*"+after)) // an error means none, too
	if len(files) == 0 {
		return "--data names a folder with the folder trace, --gpu what follows summary_power_ there"
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), before), after)
	}
	return "types of GPU there: " + strings.Join(files, ", ")
}

// replayEnergy replays every training under every policy. Rows are by training, then by policy.
func replayEnergy(ctx context.Context, trainings []recurring.Training, o energyOptions) ([]recurring.Row, error) {
	policies := recurring.Policies()
	rows := make([]recurring.Row, len(trainings)*len(policies))
	return rows, each(ctx, len(rows), func(i int) (err error) {
		rows[i], err = recurring.Run(&trainings[i/len(policies)], policies[i%len(policies)], o.eta, o.seeds)
		return err
	})
}

func (a *app) writeEnergy(all energyResult) error {
	rows := [][]string{{
		"gpu", "dataset", "policy", "energy_ratio", "time_ratio", "cost_ratio", "regret", "first20_energy_ratio", "worst_time_ratio",
	}}
	for _, r := range all.Rows {
		rows = append(rows, []string{
			r.GPU, r.Dataset, r.Policy, render.Exactly(r.EnergyRatio), render.Exactly(r.TimeRatio), render.Exactly(r.CostRatio), render.Exactly(r.Regret),
			render.Exactly(r.First20EnergyRatio), render.Exactly(r.WorstTimeRatio),
		})
	}
	return a.write(result{all, rows, "GPU\tDATASET\tPOLICY\tENERGY\tTIME\tCOST\tREGRET\tFIRST 20\tWORST TIME", func(w io.Writer) {
		line := func(gpu, dataset, policy string, f recurring.Figures) {
			fmt.Fprintf(w, "%s\t%s\t%s\t%.3f\t%.3f\t%.3f\t%.2f\t%.3f\t%.2f\n", gpu, dataset, policy, f.EnergyRatio, f.TimeRatio, f.CostRatio, f.Regret,
				f.First20EnergyRatio, f.WorstTimeRatio)
		}
		for _, r := range all.Rows {
			line(r.GPU, r.Dataset, r.Policy, r.Figures)
		}
		for _, p := range recurring.Policies() {
			line("all", "mean", p.Name(), all.Aggregate[p.Name()])
		}
	}})
}
