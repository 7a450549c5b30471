// Package network holds the commands on topologies, probes and lossy links.
package network

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/fabric"
	"github.com/switchyard-dl/switchyard/services/planner/probe"
)

// Command makes the command of this package.
func Command(a *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "net",
		Short: "Show the network: its topology, the probed paths, degraded links",
	}
	cmd.AddCommand(netTopologyCommand(a), netPlanCommand(a), console.MovedToLab("net", "simulate"), netStatusCommand(a), netWatchCommand(a))
	cmd.AddCommand(netRoles()...)
	return cmd
}

// FabricFlags name a network.
type FabricFlags struct {
	topology string
	directed bool
}

// Declare adds the flags of commands that need candidate paths.
func (f *FabricFlags) Declare(cmd *cobra.Command) {
	f.declareTopology(cmd)
	cmd.Flags().BoolVar(&f.directed, "directed", false, "treat both directions of a link as two links, and paths as one-way")
}

func (f *FabricFlags) declareTopology(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.topology, "topology", "", "`fattree:PORTS`, vl2:PORTS,PORTS,SERVERS, bcube:PORTS,LEVELS or a file in YAML")
}

// Paths returns the candidate paths of the network. For a file these are all shortest paths between its nodes.
func (f *FabricFlags) Paths() (fabric.Paths, error) {
	t, paths, err := f.read()
	if err != nil || paths.Round != nil {
		return paths, err
	}
	routes, err := t.Routes(f.directed)
	if err != nil {
		return paths, err
	}
	return t.Candidates(routes, f.directed), nil
}

// read returns the network and, if it is generated, its paths.
func (f *FabricFlags) read() (*fabric.Topology, fabric.Paths, error) {
	if f.topology == "" {
		return nil, fabric.Paths{}, exit.Usagef("want --topology")
	}
	t, paths, generated, err := fabric.Generate(f.topology, f.directed)
	if generated {
		if err != nil {
			err = exit.Usagef("%v", err)
		}
		return t, paths, err
	}
	text, err := os.ReadFile(f.topology)
	if err != nil {
		return nil, paths, exit.Errorf(exit.Usage, "name a file, or fattree:12, vl2:40,24,40, bcube:8,4", "topology %s: %v", f.topology, err)
	}
	if t, err = fabric.Read(text); err != nil {
		return nil, paths, exit.Usagef("%s: %v", f.topology, err)
	}
	return t, paths, nil
}

// GoalFlags say what the chosen paths must be able to tell.
type GoalFlags struct{ goal probe.Goal }

// Declare adds the flags.
func (f *GoalFlags) Declare(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.goal.Alpha, "alpha", 2, "least number of paths over each link")
	cmd.Flags().IntVar(&f.goal.Beta, "beta", 1, "number of simultaneous link failures that can be told apart: 0 to 3")
}

// Goal checks the flags.
func (f *GoalFlags) Goal() (probe.Goal, error) {
	if g := f.goal; g.Alpha < 1 || g.Alpha > 100 || g.Beta < 0 || g.Beta > 3 {
		return g, exit.Usagef("--alpha %d --beta %d: want 1 to 100 and 0 to 3", g.Alpha, g.Beta)
	}
	return f.goal, nil
}

// netPlan is the result of `net plan`.
type netPlan struct {
	Links      int     `json:"links"`
	Candidates int64   `json:"candidates"`
	Paths      int     `json:"paths"`
	AlphaMin   int     `json:"alpha_min"`
	Beta       int     `json:"beta"`
	Seconds    float64 `json:"seconds"`
}

func netPlanCommand(a *console.Console) *cobra.Command {
	var (
		network FabricFlags
		flags   GoalFlags
	)
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Choose the paths to probe, so that lossy links can be identified",
		Long: `Chooses a small set of paths that covers each link at least --alpha times and identifies up to --beta simultaneous link failures.
alpha_min and beta are what an exact check of the chosen paths finds, independently of the construction. seconds is the time of
the construction.`,
		Example: `  switchyard net plan --topology fattree:18 --alpha 2 --beta 1 -o json
  switchyard net plan --topology yard.yaml --directed --alpha 3`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			goal, err := flags.Goal()
			if err != nil {
				return err
			}
			paths, err := network.Paths()
			if err != nil {
				return err
			}
			begin := time.Now()
			rows := probe.Plan(paths, goal)
			p := netPlan{Links: paths.Links * paths.Parts, Candidates: paths.Count, Paths: len(rows), Seconds: time.Since(begin).Seconds()}
			p.AlphaMin, p.Beta = probe.Check(fabric.NewMatrix(p.Links, rows), goal.Beta)
			return a.Show(p, "LINKS\tCANDIDATES\tPATHS\tALPHA\tBETA\tSECONDS", func(w io.Writer) {
				fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%.3f\n", p.Links, p.Candidates, p.Paths, p.AlphaMin, p.Beta, p.Seconds)
			})
		},
	}
	network.Declare(cmd)
	flags.Declare(cmd)
	return cmd
}
