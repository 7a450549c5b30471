package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/config"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/nodeagent"
	"github.com/switchyard-dl/switchyard/services/nodeagent/meter"
)

func (a *app) energyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "energy", Short: "Look at the energy meters of this machine"}
	cmd.AddCommand(a.energyCheckCommand())
	return cmd
}

func (a *app) energyCheckCommand() *cobra.Command {
	all, set := settings.New()
	var line *config.CommandLine
	var length time.Duration
	cmd := &cobra.Command{
		Use: "check", Short: "Compare the energy meters of this machine with each other and with the model", Args: cobra.NoArgs,
		Long: `Reads all meters of this machine side by side: counters and power of GPUs (NVML), RAPL, PCM, PDU, Redfish and the model, as the section nodeagent of switchyard.yaml
names them. The node agent uses the first one of each component; ERROR is by how much the power of another one differs from it. Let the machine work as it usually
does meanwhile. Services and jobs are not touched.`,
		Example: "  switchyard energy check --for 1m",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := line.Load(os.Environ()); err != nil {
				return exit.Usagef("%v", err)
			}
			if length < leastComparison {
				return exit.Usagef("--for %s: want at least %s", length, leastComparison)
			}
			return a.energyCheck(cmd.Context(), all, length)
		},
	}
	line = set.CommandLine(cmd.Flags(), func(s *config.Setting) bool { return s.Name == "data-dir" || s.Name == "node" })
	cmd.Flags().DurationVar(&length, "for", 30*time.Second, "how long to read the meters")
	cmd.SetFlagErrorFunc(flagError)
	return cmd
}

// leastComparison is the shortest time in which each meter can be read twice.
const leastComparison = 3 * time.Second

func (a *app) energyCheck(ctx context.Context, all *settings.All, length time.Duration) error {
	fmt.Fprintf(a.Stderr, "reading the meters for %s\n", length)
	p := run.Process{Common: all.Common, Log: slog.New(slog.DiscardHandler)}
	compared, err := nodeagent.New(all.NodeAgent).CompareMeters(ctx, p, length)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(compared, func(r meter.Compared) bool { return r.Seconds > 0 && r.Method != train.MethodModelled }) {
		fmt.Fprintln(a.Stderr, "no meter answers here, so there is nothing to compare the model with")
	}
	return a.Show(compared, "COMPONENT\tMETER\tENERGY\tPOWER\tERROR", func(w io.Writer) {
		for _, r := range compared {
			fmt.Fprintln(w, comparedRow(r))
		}
	})
}

func comparedRow(r meter.Compared) string {
	component := r.Component
	if r.Device != "" {
		component = string(r.Device)
	}
	if r.Trouble != "" {
		return fmt.Sprintf("%s\t%s\t-\t-\t%s", component, r.Method, r.Trouble)
	}
	off := ""
	if r.Error != nil {
		off = fmt.Sprintf("%+.1f %%", 100**r.Error)
	}
	return fmt.Sprintf("%s\t%s\t%s\t%.1f W\t%s", component, r.Method, r.Energy, r.Watts(), off)
}
