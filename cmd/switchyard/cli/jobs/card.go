package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/results"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/render"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// card closes the log of a job that has ended: with what it took, and where its files are. What does not answer is left
// out.
func (r *logReader) card(ctx context.Context) {
	d, err := r.settled(ctx)
	if err != nil {
		return
	}
	c := render.Card{Job: r.job, Report: d.Report, Account: d.Account}
	if d.Attempt != nil {
		c.Places = d.Attempt.Places()
	}
	if answer, err := results.Ask(ctx, r.yard, train.FileRequest{Job: r.job.ID}); err == nil {
		c.Folders = &answer.Folders
	}
	for _, line := range c.Lines() {
		fmt.Fprintf(r.stderr, "  %-10s  %s\n", line[0], line[1])
	}
}

// settled returns what is known about the job, with its energy. That is final about a second after the job's end, which
// is worth a wait after a long run only.
func (r *logReader) settled(ctx context.Context) (view.Detail, error) {
	const part, most = 10, 3 * time.Second
	wait, cancel := context.WithTimeout(ctx, min(time.Duration(r.job.RunSeconds*float64(time.Second))/part, most))
	defer cancel()
	for {
		d, err := r.yard.Job(ctx, string(r.job.ID), exit.Failed)
		if err != nil || d.Account != nil && d.Account.Final || !tick.Pause(wait, r.poll) {
			return d, err
		}
	}
}
