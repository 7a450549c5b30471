package cluster

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/libs/audit"
	"github.com/switchyard-dl/switchyard/libs/render"
)

// showAudit shows who asked for what.
func showAudit(ctx context.Context, a *console.Console, y console.Yard, f audit.Filter) error {
	entries, err := y.Audit(ctx, f)
	if err != nil {
		return err
	}
	return a.Show(entries, "TIME\tWHO\tBY\tASKED\tABOUT\tOUTCOME", func(w io.Writer) {
		for _, d := range entries {
			outcome := strings.TrimSuffix(d.Outcome+": "+d.Why, ": ")
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", d.Time.Local().Format(time.DateTime), render.Cell(d.Who, 24), render.Cell(d.Door, 12), render.EscapeText(d.Fact),
				render.Cell(strings.TrimSpace(d.Entity+" "+d.ID), 48), render.Cell(outcome, 160))
		}
	})
}
