package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/lab/recurring"
	"github.com/switchyard-dl/switchyard/libs/render"
)

func (a *app) simulateLimitCommand() *cobra.Command {
	var windows string
	var eta float64
	cmd := &cobra.Command{
		Use:   "power-limit",
		Short: "Choose the power limit that a profile of windows speaks for",
		Long: `Reads profiles of power limits (one CSV file for each job: window_name ending in _WATTS, elapsed_time in seconds, gpu<i>_energy in joules) and chooses for
each the limit of least cost, eta*energy + (1-eta)*time*(highest limit of all devices), as the node agent does inside a run.`,
		Example: `  switchyard-lab simulate power-limit --windows zeus/plo_windows --eta 0.5 -o json`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if windows == "" {
				return exit.Usagef("--windows is required")
			}
			if err := checkEta(eta); err != nil {
				return err
			}
			const fix = "--windows names a folder with a CSV file for each job"
			profiles, err := recurring.LoadProfiles(os.DirFS(windows))
			if err != nil {
				return exit.Errorf(exit.Usage, fix, "--windows %s: %v", windows, err)
			}
			if len(profiles) == 0 {
				return exit.Errorf(exit.Usage, fix, "--windows %s: no file *.csv there", windows)
			}
			choices := make([]recurring.Choice, len(profiles))
			for i, p := range profiles {
				choices[i] = p.Choose(eta)
			}
			return a.writeChoices(choices)
		},
	}
	cmd.Flags().StringVar(&windows, "windows", "", "folder of the profiles")
	cmd.Flags().Float64Var(&eta, "eta", 0.5, "what energy weighs against time, 0 (time) to 1 (energy)")
	return cmd
}

func (a *app) writeChoices(choices []recurring.Choice) error {
	rows := [][]string{{"file", "devices", "power_limit", "energy_ratio", "time_ratio"}}
	for _, c := range choices {
		rows = append(rows, []string{c.File, strconv.Itoa(c.Devices), render.Exactly(c.PowerLimit), render.Exactly(c.EnergyRatio), render.Exactly(c.TimeRatio)})
	}
	return a.write(result{map[string]any{"rows": choices}, rows, "FILE\tDEVICES\tLIMIT\tENERGY\tTIME", func(w io.Writer) {
		for _, c := range choices {
			fmt.Fprintf(w, "%s\t%d\t%.0f W\t%.3f\t%.3f\n", c.File, c.Devices, c.PowerLimit, c.EnergyRatio, c.TimeRatio)
		}
	}})
}
