package cli

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/lab/sharing"
	"github.com/switchyard-dl/switchyard/libs/render"
)

func (a *app) simulateBatchCommand() *cobra.Command {
	var folder, gpu string
	cmd := &cobra.Command{
		Use:   "batch",
		Short: "Tune the batch sizes of two jobs that share a GPU, on step times measured in pairs",
		Long: `Tunes the batch sizes of every two families of models beside each other, among the sizes that were measured, as the planner tunes jobs that share a GPU: each
evaluation reads one measurement. The score is the sum over both jobs of samples/s relative to their best samples/s alone.`,
		Example: `  switchyard-lab simulate batch --throughputs gavel/derived --gpu v100 -o json`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			table, err := loadThroughputs(folder, gpu)
			if err != nil {
				return err
			}
			return a.writeTuned(sharing.TuneAll(table, gpu))
		},
	}
	throughputsFlags(cmd, &folder, &gpu)
	return cmd
}

func (a *app) writeTuned(all []sharing.Tuned) error {
	rows := [][]string{{
		"gpu", "model_a", "model_b", "batch_a", "batch_b", "cells", "evaluations", "oom_evaluations", "score", "best_score", "relative_score",
	}}
	sum, worst := 0.0, 1.0
	for _, t := range all {
		rows = append(rows, []string{
			t.GPU, t.ModelA, t.ModelB, strconv.Itoa(t.BatchA), strconv.Itoa(t.BatchB), strconv.Itoa(t.Cells), strconv.Itoa(t.Evaluations),
			strconv.Itoa(t.OutOfMemory), render.Exactly(t.Score), render.Exactly(t.BestScore), render.Exactly(t.Relative),
		})
		sum, worst = sum+t.Relative, min(worst, t.Relative)
	}
	return a.write(result{all, rows, "GPU\tJOBS\tBATCHES\tGRID\tTRIED\tOUT OF MEMORY\tSCORE\tOF THE BEST", func(w io.Writer) {
		for _, t := range all {
			fmt.Fprintf(w, "%s\t%s + %s\t%d + %d\t%d\t%d\t%d\t%.3f\t%.1f%%\n", t.GPU, t.ModelA, t.ModelB, t.BatchA, t.BatchB, t.Cells, t.Evaluations,
				t.OutOfMemory, t.Score, 100*t.Relative)
		}
		fmt.Fprintf(w, "\tmean\t\t\t\t\t\t%.1f%%\n\tworst\t\t\t\t\t\t%.1f%%\n", 100*sum/float64(max(len(all), 1)), 100*worst)
	}})
}
