package explain

import (
	"fmt"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// Batch is the micro-batch times the passes of a step.
func Batch(v *view.Tuning) string {
	if v == nil {
		return "-"
	}
	return render.Dash(train.TunedJob{MicroBatch: v.MicroBatch, Accumulation: v.Accumulation}.String())
}

func (p *page) tuning(v *view.Tuning) {
	if v == nil {
		return
	}
	line := "as submitted: the code does not follow a micro-batch"
	if v.MicroBatch > 0 {
		line = fmt.Sprintf("%d samples, %s to a step", v.MicroBatch, counted(v.Accumulation, "pass", "passes"))
	}
	if len(v.Beside) > 0 {
		line += ", beside " + strings.Join(v.Beside, ", ")
	}
	p.field("micro-batch", "%s", line)
	why := "being tuned"
	if v.Settled.Code != "" {
		why = because(v.Settled)
	}
	p.field("", "%s (generation %d, %s)", why, v.Generation, render.Plural(v.Trials, "trial"))
}
