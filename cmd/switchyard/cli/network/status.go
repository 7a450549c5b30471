package network

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/cluster"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

func netStatusCommand(a *console.Console) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show links that lose or delay packets, and nodes whose probes do not count",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error {
				probed, err := y.Probed(ctx)
				if err != nil {
					return err
				}
				status := probed.NetStatus
				if !all {
					status = probed.Troubled()
				}
				return printNetStatus(a, status, time.Now())
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every probed link, not only links that lost or delayed packets within the last hour")
	return cmd
}

func netWatchCommand(a *console.Console) *cobra.Command {
	var past bool
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Follow links that begin to lose or delay packets, or recover",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error {
				return cluster.Follow(ctx, a, b, []string{event.StreamNet}, past, false, "")
			})
		},
	}
	cmd.Flags().BoolVar(&past, "all", false, "begin with the oldest stored fact")
	return cmd
}

func printNetStatus(a *console.Console, s view.NetStatus, now time.Time) error {
	if a.Output == "json" {
		return a.PrintJSON(s)
	}
	if s.Nodes == 0 {
		fmt.Fprintln(a.Stderr, "no node probes the network: set nodeagent.probe_listen")
		return nil
	}
	judged := "no recent verdict"
	if s.JudgedAt != nil {
		judged = "judged " + now.Sub(*s.JudgedAt).Round(time.Second).String() + " ago"
	}
	fmt.Fprintf(a.Stdout, "%d nodes probe %d paths over %d links, %s\n", s.Nodes, s.Flows, s.ProbedLinks, judged)
	if err := printNetLinks(a, s.Links, now); err != nil || len(s.Ailing) == 0 {
		return err
	}
	fmt.Fprintln(a.Stdout, "\nprobes of these nodes do not count")
	return a.Table("NODE\tWHY\tMEANING", func(w io.Writer) {
		for _, n := range s.Ailing {
			fmt.Fprintf(w, "%s\t%s\t%s\n", n.Node, n.Why, meaning(n))
		}
	})
}

// meaning describes the trouble of a node.
func meaning(n train.UnhealthyNode) string {
	switch n.Why {
	case train.NodeIsSilent:
		return "does not report its counts"
	case train.NodeIsStalled:
		return "its agent got too little processor time"
	case train.NodeHasClockSkew:
		order := "behind"
		if n.BehindSeconds < 0 {
			order = "ahead of"
		}
		return fmt.Sprintf("its clock is %.3g s %s others", math.Abs(n.BehindSeconds), order)
	}
	return "-"
}

func printNetLinks(a *console.Console, links []view.NetLink, now time.Time) error {
	if len(links) == 0 {
		fmt.Fprintln(a.Stdout, "no link loses or delays packets")
		return nil
	}
	return a.Table("LINK\tSTATE\tLOSS\tDELAY\tCONFIDENCE\tSINCE\tPATHS", func(w io.Writer) {
		for _, l := range links {
			state, loss, delay, sure, since := [...]string{"lossy", "slow", "recovered", "well"}[view.StateOf(l.Link)], "-", "-", "-", "-"
			if !l.Since.IsZero() {
				since = now.Sub(l.Since).Round(time.Second).String() + " ago"
			}
			switch view.StateOf(l.Link) { //nolint:exhaustive // the others have no figure
			case view.LinkLossy:
				loss = fmt.Sprintf("%.2f %%", 100*l.Loss)
			case view.LinkSlow:
				delay = fmt.Sprintf("%.3g ms", 1e3*l.DelaySeconds)
			}
			if l.Degraded {
				sure = fmt.Sprintf("%.0f %%", 100*l.Confidence)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\n", strings.Join(append([]string{l.ID}, l.Alike...), " or "), state, loss, delay, sure, since, l.Flows)
		}
	})
}
