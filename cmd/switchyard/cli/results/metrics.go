package results

import (
	"context"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/sheet"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// writeMetrics writes a row for each epoch. An empty cell is unknown; energy_j counts from the start of the job.
func writeMetrics(ctx context.Context, y console.Yard, job train.Job, w io.Writer) error {
	reported, err := y.Epochs(ctx, job.ID)
	if err != nil {
		return err
	}
	all := reported.Epochs
	d, err := y.Job(ctx, string(job.ID), exit.Failed)
	if err != nil {
		return err
	}
	joules := map[int]float64{}
	if d.Course != nil {
		for _, e := range d.Course.Epochs {
			joules[e.EpochsDone] = e.Energy.Joules()
		}
	}
	named := map[string]bool{}
	for _, e := range all {
		for name := range e.Metrics {
			named[name] = true
		}
	}
	names := slices.Sorted(maps.Keys(named))
	rows := [][]string{append([]string{"epoch", "time", "attempt", "devices", "seconds", "step_seconds", "global_batch", "energy_j", "loss"}, names...)}
	for _, e := range all {
		energy, known := joules[e.EpochsDone]
		row := []string{
			strconv.Itoa(e.EpochsDone), e.At.UTC().Format(time.RFC3339Nano), strconv.Itoa(e.Attempt), strconv.Itoa(e.Devices), render.Exactly(e.EpochSeconds),
			cell(e.StepSeconds, e.StepSeconds > 0), cell(float64(e.Batch.Global(e.Devices)), e.Batch.LocalBatch > 0), cell(energy, known), "",
		}
		if e.Loss != nil {
			row[len(row)-1] = render.Exactly(*e.Loss)
		}
		for _, name := range names {
			v, told := e.Metrics[name]
			row = append(row, cell(v, told))
		}
		rows = append(rows, row)
	}
	return sheet.Write(w, rows)
}

func cell(v float64, known bool) string {
	if !known {
		return ""
	}
	return render.Exactly(v)
}
