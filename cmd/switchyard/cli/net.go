package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/libs/fabric"
	"github.com/switchyard-dl/switchyard/services/planner/probe"
)

func (a *app) netCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "net",
		Short: "The network: its topology, which paths are probed, how well lossy links are found",
	}
	cmd.AddCommand(a.netTopologyCommand(), a.netPlanCommand(), a.netSimulateCommand(), a.netStatusCommand(), a.netWatchCommand())
	cmd.AddCommand(a.netRoles()...)
	return cmd
}

// fabricFlags name a network.
type fabricFlags struct {
	topology string
	directed bool
}

func (f *fabricFlags) add(cmd *cobra.Command) {
	f.addOptional(cmd)
	_ = cmd.MarkFlagRequired("topology")
}

func (f *fabricFlags) addOptional(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.topology, "topology", "", "`fattree:PORTS`, vl2:PORTS,PORTS,SERVERS, bcube:PORTS,LEVELS or a file in YAML")
}

func (f *fabricFlags) addDirected(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.directed, "directed", false, "one-way paths over links of two directions, as packets see them")
}

// load gives the network and its candidate paths. Of a file those are all shortest ways between its nodes.
func (f *fabricFlags) load() (*fabric.Topology, fabric.Paths, error) {
	t, err := f.read()
	if err != nil {
		return nil, fabric.Paths{}, err
	}
	if t.paths.Round != nil {
		return t.topology, t.paths, nil
	}
	routes, err := t.topology.Routes(f.directed)
	if err != nil {
		return nil, fabric.Paths{}, runtime(err)
	}
	return t.topology, t.topology.Candidates(routes, f.directed), nil
}

type network struct {
	topology *fabric.Topology
	paths    fabric.Paths // of a generated one
}

func (f *fabricFlags) read() (network, error) {
	t, paths, generated, err := fabric.Generate(f.topology, f.directed)
	if generated {
		if err != nil {
			err = failure(ExitUsage, "", "%v", err)
		}
		return network{t, paths}, err
	}
	text, err := os.ReadFile(f.topology)
	if err != nil {
		return network{}, failure(ExitUsage, "name a file, or fattree:12, vl2:40,24,40, bcube:8,4", "topology %s: %v", f.topology, err)
	}
	if t, err = fabric.Read(text); err != nil {
		return network{}, failure(ExitUsage, "", "%s: %v", f.topology, err)
	}
	return network{topology: t}, nil
}

func goalFlags(cmd *cobra.Command, goal *probe.Goal) {
	cmd.Flags().IntVar(&goal.Alpha, "alpha", 2, "paths over each link at least")
	cmd.Flags().IntVar(&goal.Beta, "beta", 1, "links that fail at once and are told from all others: 0 to 3")
}

func checkGoal(goal probe.Goal) error {
	if goal.Alpha < 1 || goal.Alpha > 100 || goal.Beta < 0 || goal.Beta > 3 {
		return failure(ExitUsage, "", "--alpha %d --beta %d: want 1 to 100 and 0 to 3", goal.Alpha, goal.Beta)
	}
	return nil
}

// netPlan is what `net plan` writes.
type netPlan struct {
	Links      int     `json:"links"`
	Candidates int64   `json:"candidates"`
	Paths      int     `json:"paths"`
	AlphaMin   int     `json:"alpha_min"`
	Beta       int     `json:"beta"`
	Seconds    float64 `json:"seconds"`
}

func (a *app) netPlanCommand() *cobra.Command {
	var (
		network fabricFlags
		goal    probe.Goal
	)
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Choose the paths to probe, so that lossy links can be told apart",
		Long: `Chooses, among all paths of a network, few that cover each link often enough and tell links that fail at once from all others. alpha_min and beta are what the
chosen paths truly have: the least paths over a link, and the number of links, up to the one asked for, by an exact check that is apart from the construction. The
seconds are those of the construction.`,
		Example: `  switchyard net plan --topology fattree:18 --alpha 2 --beta 1 -o json
  switchyard net plan --topology yard.yaml --directed --alpha 3`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := checkGoal(goal); err != nil {
				return err
			}
			_, paths, err := network.load()
			if err != nil {
				return err
			}
			begin := time.Now()
			rows := probe.Plan(paths, goal)
			p := netPlan{Links: paths.Links * paths.Parts, Candidates: paths.Count, Paths: len(rows), Seconds: time.Since(begin).Seconds()}
			p.AlphaMin, p.Beta = probe.Check(fabric.NewMatrix(p.Links, rows), goal.Beta)
			if a.output == "json" {
				return a.printJSON(p)
			}
			return a.table("LINKS\tCANDIDATES\tPATHS\tALPHA\tBETA\tSECONDS", func(w io.Writer) {
				_, _ = fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%.3f\n", p.Links, p.Candidates, p.Paths, p.AlphaMin, p.Beta, p.Seconds)
			})
		},
	}
	network.add(cmd)
	network.addDirected(cmd)
	goalFlags(cmd, &goal)
	return cmd
}
