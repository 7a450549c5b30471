package cli

import (
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/libs/fabric"
	"github.com/switchyard-dl/switchyard/services/planner/probe"
)

func (a *app) netCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "net",
		Short: "How well lossy links of a network are found",
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if !slices.Contains([]string{"table", "json"}, a.output) {
				return failure(ExitUsage, "", "-o %q: want table or json", a.output)
			}
			return nil
		},
	}
	cmd.AddCommand(a.netSimulateCommand())
	return cmd
}

// fabricFlags name a network.
type fabricFlags struct {
	topology string
	directed bool
}

func (f *fabricFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.topology, "topology", "", "`fattree:PORTS`, vl2:PORTS,PORTS,SERVERS, bcube:PORTS,LEVELS or a file in YAML")
	cmd.Flags().BoolVar(&f.directed, "directed", false, "one-way paths over links of two directions, as packets see them")
	_ = cmd.MarkFlagRequired("topology")
}

// paths returns the candidate paths of the network: those of the generator, or, for a file, all shortest paths
// between its nodes.
func (f *fabricFlags) paths() (fabric.Paths, error) {
	_, paths, generated, err := fabric.Generate(f.topology, f.directed)
	if generated {
		if err != nil {
			err = failure(ExitUsage, "", "%v", err)
		}
		return paths, err
	}
	text, err := os.ReadFile(f.topology)
	if err != nil {
		return paths, failure(ExitUsage, "name a file, or fattree:12, vl2:40,24,40, bcube:8,4", "topology %s: %v", f.topology, err)
	}
	t, err := fabric.Read(text)
	if err != nil {
		return paths, failure(ExitUsage, "", "%s: %v", f.topology, err)
	}
	routes, err := t.Routes(f.directed)
	if err != nil {
		return paths, runtime(err)
	}
	return t.Candidates(routes, f.directed), nil
}

func goalFlags(cmd *cobra.Command, goal *probe.Goal) {
	cmd.Flags().IntVar(&goal.Alpha, "alpha", 2, "paths over each link at least")
	cmd.Flags().IntVar(&goal.Beta, "beta", 1, "number of links that may fail at once and are still told apart from all others: 0 to 3")
}

func checkGoal(goal probe.Goal) error {
	if goal.Alpha < 1 || goal.Alpha > 100 || goal.Beta < 0 || goal.Beta > 3 {
		return failure(ExitUsage, "", "--alpha %d --beta %d: want 1 to 100 and 0 to 3", goal.Alpha, goal.Beta)
	}
	return nil
}
