package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/lab/servers"
)

// serversOptions are the flags of simulate servers.
type serversOptions struct {
	jobs, seeds int
	unevenness  float64
}

func (a *app) simulateServersCommand() *cobra.Command {
	var o serversOptions
	cmd := &cobra.Command{
		Use:   "servers",
		Short: "Play the nine trainings of Optimus with parameter servers under optimus, DRF and Tetris",
		Long: `Plays jobs with parameter servers in virtual time, on a cluster of the size of Optimus's: the planner's own policy optimus, and the policies that the paper
compares it with, which start a server with each worker. Figures are means over workloads. docs/optimus.md says what is published and what is assumed.`,
		Example: `  switchyard-lab simulate servers
  switchyard-lab simulate servers --jobs 27 --unevenness 1.34 -o json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if o.jobs < 1 || o.seeds < 1 || o.unevenness < 1 {
				return exit.Usagef("--jobs %d, --seeds %d, --unevenness %g: want 1 or more", o.jobs, o.seeds, o.unevenness)
			}
			return a.playServers(o)
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&o.jobs, "jobs", 9, "how many jobs a workload has")
	fs.IntVar(&o.seeds, "seeds", 10, "how many workloads are played")
	fs.Float64Var(&o.unevenness, "unevenness", 1, "load of the busiest server over the mean; 1 is with balanced blocks (PAA)")
	return cmd
}

// serversRow is the mean of a policy over workloads, and how often that of optimus it is.
type serversRow struct {
	Policy          string  `json:"policy"`
	JCTSeconds      float64 `json:"jct_s"`
	MakespanSeconds float64 `json:"makespan_s"`
	Restarts        float64 `json:"restarts"`
	JCTRatio        float64 `json:"jct_over_optimus"`
	MakespanRatio   float64 `json:"makespan_over_optimus"`
}

func (a *app) playServers(o serversOptions) error {
	var rows []serversRow
	for _, p := range servers.Policies() {
		row, n := serversRow{Policy: p.Name()}, float64(o.seeds)
		for seed := range o.seeds {
			r, err := servers.Run(servers.Jobs(uint64(seed), o.jobs, o.unevenness), p, servers.Standard())
			if err != nil {
				return err
			}
			row.JCTSeconds += r.JCT.Seconds() / n
			row.MakespanSeconds += r.Makespan.Seconds() / n
			row.Restarts += float64(r.Restarts) / n
		}
		rows = append(rows, row)
	}
	for i := range rows {
		rows[i].JCTRatio, rows[i].MakespanRatio = rows[i].JCTSeconds/rows[0].JCTSeconds, rows[i].MakespanSeconds/rows[0].MakespanSeconds
	}
	hours := func(seconds float64) float64 { return seconds / time.Hour.Seconds() }
	return a.Show(rows, "POLICY\tJCT H\tMAKESPAN H\tRESTARTS\tJCT / OPTIMUS\tMAKESPAN / OPTIMUS", func(w io.Writer) {
		for _, r := range rows {
			fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.1f\t%.2f\t%.2f\n", r.Policy, hours(r.JCTSeconds), hours(r.MakespanSeconds), r.Restarts, r.JCTRatio, r.MakespanRatio)
		}
	})
}
