package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/results"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/render"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// card closes the log of a job that has ended: with what it took, and where its files are. What does not answer is left
// out.
func (r *logReader) card(ctx context.Context) {
	c := render.Card{Job: r.job}
	if attempt, found, err := console.GetIfThere(ctx, r.bus, contract.Attempts, string(r.job.ID)); err == nil && found {
		c.Places = attempt.Places()
	}
	if report, found, err := console.GetIfThere(ctx, r.bus, contract.Reports, contract.ReportKey(r.job.ID, r.job.Attempt)); err == nil && found {
		c.Report = &report
	}
	if answer, err := results.Ask(ctx, r.bus, train.FileRequest{Job: r.job.ID}); err == nil {
		c.Folders = &answer.Folders
	}
	c.Account = r.account(ctx)
	for _, line := range c.Lines() {
		fmt.Fprintf(r.stderr, "  %-10s  %s\n", line[0], line[1])
	}
}

// account returns what the job's energy is known to be. It is final about a second after the job's end: that is worth
// a wait after a long run only.
func (r *logReader) account(ctx context.Context) *train.Account {
	const part, most = 10, 3 * time.Second
	wait, cancel := context.WithTimeout(ctx, min(time.Duration(r.job.RunSeconds*float64(time.Second))/part, most))
	defer cancel()
	for {
		account, found, err := console.GetIfThere(ctx, r.bus, contract.Accounts, contract.AccountKey(r.job.ID))
		if err != nil || account.Final || !tick.Pause(wait, r.poll) {
			if err != nil || !found {
				return nil
			}
			return &account
		}
	}
}
