package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/lab/tuning"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/services/experiments/pipeline"
)

// tuneOptions are the flags of simulate tune.
type tuneOptions struct {
	grid     string
	modes    []string
	cores    []float64
	memoryGB []float64
	play     tuning.Play
}

// documentedMemoryGB are the values of PipeTune's documented configuration.
func documentedMemoryGB() []float64 { return []float64{8, 4} }

const mebibytes = 1024 // in a GiB

func (a *app) simulateTuneCommand() *cobra.Command {
	var o tuneOptions
	cmd := &cobra.Command{
		Use:   "tune",
		Short: "Tune the system parameters of trainings between their epochs, on epochs measured at every setting",
		Long: `Replays trainings on a grid of measured epochs (CSV with model, dataset, cores, memory_gb, batch, n_epochs and epoch_s_mean: the layout derived from the
measurements of PipeTune, Middleware'20). An epoch takes the mean of those measured; a change between epochs is free. A workload is replayed where the default
(the first value of each parameter) and another value of one of them were measured in a run of two epochs or more.

Modes: ` + strings.Join(tuning.Modes(), ", ") + `. fixed keeps the default, probe is the published rule, switchyard the live service's, oracle reads the grid. With two
passes the workloads come again, and what was learnt is kept. docs/tuning.md has the rules.`,
		Example: `  switchyard-lab simulate tune --grid pipetune/derived/epoch_grid.csv --mode fixed,probe,switchyard,oracle --passes 2
  switchyard-lab simulate tune --grid epoch_grid.csv --mode switchyard --memory 16,8 -o json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cases, err := o.prepare()
			if err != nil {
				return err
			}
			var rows []tuning.Row
			for _, mode := range o.modes {
				o.play.Mode = mode
				rows = append(rows, tuning.Replay(cases, o.play)...)
			}
			return a.writeTune(rows)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.grid, "grid", "", "file of measured epochs")
	fs.StringSliceVar(&o.modes, "mode", nil, "modes, joined by commas")
	fs.IntVar(&o.play.Passes, "passes", 1, "how often all workloads come, one after the other")
	fs.IntVar(&o.play.Epochs, "epochs", 10, "epochs of each training")
	fs.BoolVar(&o.play.Alone, "alone", false, "no workload learns from another")
	fs.Float64SliceVar(&o.cores, "cores", nil, "numbers of cores that may be chosen, the default first (those of the grid, the greatest first)")
	fs.Float64SliceVar(&o.memoryGB, "memory", nil, "GiB of memory that may be chosen, the default first (8,4, or those of the grid where it has no 8)")
	return cmd
}

// prepare checks the flags and reads the grid.
func (o *tuneOptions) prepare() ([]tuning.Case, error) {
	if o.grid == "" || len(o.modes) == 0 {
		return nil, exit.Usagef("--grid and --mode are required")
	}
	for _, mode := range o.modes {
		if !slices.Contains(tuning.Modes(), mode) {
			return nil, exit.Errorf(exit.Usage, nearName(mode, tuning.Modes()), "--mode %q: no such mode", mode)
		}
	}
	if o.play.Passes < 1 || o.play.Epochs < 1 {
		return nil, exit.Usagef("--passes %d, --epochs %d: want 1 or more", o.play.Passes, o.play.Epochs)
	}
	if slices.ContainsFunc(slices.Concat(o.cores, o.memoryGB), func(x float64) bool { return !(x > 0) }) {
		return nil, exit.Usagef("--cores, --memory: want numbers of more than 0")
	}
	grid, err := tuning.LoadGrid(os.DirFS(filepath.Dir(o.grid)), filepath.Base(o.grid))
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "a grid has a measured run in each row", "--grid %s: %v", o.grid, err)
	}
	cases := grid.Cases(o.space(grid))
	if len(cases) == 0 {
		return nil, exit.Errorf(exit.Usage, "--cores and --memory name the values to choose from, the default first",
			"--grid %s: no workload was measured at the default and beside it", o.grid)
	}
	return cases, nil
}

// space is what may be chosen: what the flags say, or what the grid has.
func (o *tuneOptions) space(grid tuning.Grid) pipeline.Space {
	cores, memory := o.cores, []float64(nil)
	if cores == nil {
		cores = grid.Values(pipeline.Cores)
	}
	measured := grid.Values(pipeline.Memory)
	wanted := o.memoryGB
	if wanted == nil {
		wanted = documentedMemoryGB()
	}
	for _, gb := range wanted {
		memory = append(memory, gb*mebibytes)
	}
	if o.memoryGB == nil && !slices.Contains(measured, memory[0]) {
		memory = measured
	}
	return pipeline.Space{{Name: pipeline.Cores, Values: cores}, {Name: pipeline.Memory, Values: memory}}
}

func (a *app) writeTune(all []tuning.Row) error {
	rows := [][]string{{"workload", "mode", "pass", "total_seconds", "epochs"}}
	for _, r := range all {
		rows = append(rows, []string{r.Workload, r.Mode, strconv.Itoa(r.Pass), render.Exactly(r.TotalSeconds), strconv.Itoa(r.Epochs)})
	}
	return a.write(result{all, rows, "WORKLOAD\tMODE\tPASS\tTOTAL\tCORES/GIB, EPOCH BY EPOCH", func(w io.Writer) {
		for i, r := range all {
			fmt.Fprintf(w, "%s\t%s\t%d\t%.1f s\t%s\n", r.Workload, r.Mode, r.Pass, r.TotalSeconds, settingsText(r.Settings))
			if i+1 == len(all) || all[i+1].Mode != r.Mode || all[i+1].Pass != r.Pass {
				fmt.Fprintf(w, "all\t%s\t%d\t%.1f s\t\n", r.Mode, r.Pass, totalOf(all, r.Mode, r.Pass))
			}
		}
	}})
}

func totalOf(rows []tuning.Row, mode string, pass int) float64 {
	sum := 0.0
	for _, r := range rows {
		if r.Mode == mode && r.Pass == pass {
			sum += r.TotalSeconds
		}
	}
	return sum
}

// settingsText writes equal ones that follow each other once: "16/8 8/8 4/8 x8".
func settingsText(settings []contract.SettingValues) string {
	var parts []string
	for i := 0; i < len(settings); {
		n := 1
		for i+n < len(settings) && settings[i+n].Equal(settings[i]) {
			n++
		}
		text := render.Exactly(settings[i][pipeline.Cores]) + "/" + render.Exactly(settings[i][pipeline.Memory]/mebibytes)
		if n > 1 {
			text += " x" + strconv.Itoa(n)
		}
		parts = append(parts, text)
		i += n
	}
	return strings.Join(parts, " ")
}
