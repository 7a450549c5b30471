package cli

import (
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/network"
	"github.com/switchyard-dl/switchyard/lab/nettrial"
	"github.com/switchyard-dl/switchyard/libs/fabric"
	"github.com/switchyard-dl/switchyard/services/planner/probe"
	"github.com/switchyard-dl/switchyard/services/profiler/diagnose"
)

func (a *app) netCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "net",
		Short:             "How well lossy links of a network are found",
		PersistentPreRunE: a.Accept("table", "json"),
	}
	cmd.AddCommand(a.netSimulateCommand())
	return cmd
}

// netTrial is what `net simulate` writes for each number of failures.
type netTrial struct {
	Failures       int     `json:"failures"`
	Accuracy       float64 `json:"accuracy"`
	FalsePositives float64 `json:"false_positive_ratio"`
	FalseNegatives float64 `json:"false_negative_ratio"`
	Seconds        float64 `json:"localise_seconds"`
}

func (a *app) netSimulateCommand() *cobra.Command {
	var (
		loaded   network.FabricFlags
		flags    network.GoalFlags
		failures string
		runs     int
		seed     uint64
		trial    nettrial.Network
	)
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Let links of a network fail and count how many the diagnosis names",
		Long: `Chooses the paths as "net plan" does, lets links fail and localises them from what the probes of one window met. Each failed link loses in full, or a random half of
the flows, or packets at a rate log-uniform in 1..100 %, each equally likely. Accuracy is failed links named / failed links, false positives are links named wrongly / links
named; localise_seconds is the mean of a window.`,
		Example: `  switchyard-lab net simulate --topology fattree:18 --alpha 2 --beta 1 --failures 1..50 --runs 100 --seed 1 -o json`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			counts, err := console.Numbers("--failures", failures, 10_000)
			if err != nil {
				return err
			}
			if runs < 1 || trial.Probes < 1 || trial.Flows < 1 || trial.Background < 0 || trial.Background >= 1 {
				return exit.Usagef("--runs, --probes and --flows are at least 1, --background is from 0 and below 1")
			}
			goal, err := flags.Goal()
			if err != nil {
				return err
			}
			paths, err := loaded.Paths()
			if err != nil {
				return err
			}
			trial.Matrix = fabric.NewMatrix(paths.Links*paths.Parts, probe.Plan(paths, goal))
			return a.writeTrials(playFailures(trial, counts, runs, seed))
		},
	}
	loaded.Declare(cmd)
	flags.Declare(cmd)
	cmd.Flags().StringVar(&failures, "failures", "1..10", "links that fail at once: a number, a `list` like 1,10,50 or a span like 1..50")
	cmd.Flags().IntVar(&runs, "runs", 100, "windows for each number of failures")
	cmd.Flags().Uint64Var(&seed, "seed", 1, "seed of the random draws")
	cmd.Flags().IntVar(&trial.Probes, "probes", 1000, "probes over each path in a window")
	cmd.Flags().IntVar(&trial.Flows, "flows", 8, "source ports that the probes of a path are spread over")
	cmd.Flags().Float64Var(&trial.Background, "background", 1e-5, "part of the packets that a healthy link loses")
	return cmd
}

func playFailures(n nettrial.Network, failures []int, runs int, seed uint64) []netTrial {
	trials := []netTrial{}
	for _, count := range failures {
		rnd := rand.New(rand.NewPCG(seed, uint64(count)))
		var (
			tally nettrial.Tally
			spent time.Duration
		)
		for range runs {
			failed, met := n.Window(count, rnd)
			begin := time.Now()
			named := diagnose.Localise(n.Matrix, met, diagnose.Options{})
			spent += time.Since(begin)
			tally.Judge(failed, named)
		}
		trials = append(trials, netTrial{
			Failures: count, Accuracy: tally.Accuracy(), FalsePositives: tally.FalsePositives(), FalseNegatives: tally.FalseNegatives(),
			Seconds: spent.Seconds() / float64(runs),
		})
	}
	return trials
}

func (a *app) writeTrials(trials []netTrial) error {
	return a.write(result{json: trials, header: "FAILURES\tACCURACY\tFALSE POSITIVES\tFALSE NEGATIVES\tSECONDS", table: func(w io.Writer) {
		for _, t := range trials {
			fmt.Fprintf(w, "%d\t%.2f%%\t%.2f%%\t%.2f%%\t%.4f\n", t.Failures, 100*t.Accuracy, 100*t.FalsePositives, 100*t.FalseNegatives, t.Seconds)
		}
	}})
}
