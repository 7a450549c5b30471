package network

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/cluster"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func netStatusCommand(a *console.Console) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show links that lose or delay packets, and nodes whose probes do not count",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error {
				status, err := readNetStatus(ctx, b, all)
				if err != nil {
					return err
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

// netStatus is the result of `net status`.
type netStatus struct {
	// Nodes counts the nodes that probe, Flows the probed paths, ProbedLinks the links on these paths.
	Nodes       int             `json:"nodes"`
	Flows       int             `json:"flows"`
	ProbedLinks int             `json:"probed_links"`
	Links       []netStatusLink `json:"links"`
	// Ailing are the nodes whose probes did not count in the last window, which ended at JudgedAt.
	Ailing   []train.UnhealthyNode `json:"ailing"`
	JudgedAt *time.Time            `json:"judged_at,omitempty"`
}

// netStatusLink is a link with the number of probed paths over it.
type netStatusLink struct {
	train.Link
	Flows int `json:"flows"`
}

func readNetStatus(ctx context.Context, b *bus.Bus, all bool) (netStatus, error) {
	lists, err := console.ListBucket(ctx, b, contract.Probes)
	if err != nil {
		return netStatus{}, err
	}
	links, err := console.ListBucket(ctx, b, contract.Links)
	if err != nil {
		return netStatus{}, err
	}
	judged, found, err := console.LastIfThere[event.LinksJudged](ctx, b, event.StreamSamples, event.JudgedSubject(0))
	if err != nil {
		return netStatus{}, err
	}
	status := newNetStatus(lists, links, all)
	if found && len(lists) > 0 {
		status.JudgedAt = new(time.Unix(0, 0).UTC().Add(time.Duration(judged.Slot+1) * train.ProbeSlot))
		status.Ailing = append(status.Ailing, judged.Ailing...)
	}
	return status, nil
}

// newNetStatus counts nodes, paths and links. With all it includes links that never had trouble.
func newNetStatus(lists []train.Pinglist, links []train.Link, all bool) netStatus {
	status := netStatus{Nodes: len(lists), Links: []netStatusLink{}, Ailing: []train.UnhealthyNode{}}
	flows, known := map[string]int{}, map[string]train.Link{}
	for _, list := range lists {
		status.Flows += len(list.Probes)
		for _, f := range list.Probes {
			for _, l := range f.Links {
				flows[l]++
				if all {
					known[l] = train.Link{ID: l}
				}
			}
		}
	}
	status.ProbedLinks = len(flows)
	for _, l := range links {
		known[l.ID] = l
	}
	for _, id := range slices.Sorted(maps.Keys(known)) {
		status.Links = append(status.Links, netStatusLink{known[id], flows[id]})
	}
	slices.SortStableFunc(status.Links, func(x, y netStatusLink) int {
		return cmp.Or(cmp.Compare(linkOrder(x.Link), linkOrder(y.Link)), cmp.Compare(y.Loss, x.Loss), cmp.Compare(y.DelaySeconds, x.DelaySeconds))
	})
	return status
}

// linkOrder sorts links: first those that lose packets, then slow links, then links that have recovered.
func linkOrder(l train.Link) int {
	switch {
	case l.Degraded && l.Kind != train.LinkIsSlow:
		return 0
	case l.Degraded:
		return 1
	case !l.Since.IsZero():
		return 2
	}
	return 3
}

func printNetStatus(a *console.Console, s netStatus, now time.Time) error {
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

func printNetLinks(a *console.Console, links []netStatusLink, now time.Time) error {
	if len(links) == 0 {
		fmt.Fprintln(a.Stdout, "no link loses or delays packets")
		return nil
	}
	return a.Table("LINK\tSTATE\tLOSS\tDELAY\tCONFIDENCE\tSINCE\tPATHS", func(w io.Writer) {
		for _, l := range links {
			state, loss, delay, sure, since := [...]string{"lossy", "slow", "recovered", "well"}[linkOrder(l.Link)], "-", "-", "-", "-"
			if !l.Since.IsZero() {
				since = now.Sub(l.Since).Round(time.Second).String() + " ago"
			}
			switch linkOrder(l.Link) {
			case 0:
				loss = fmt.Sprintf("%.2f %%", 100*l.Loss)
			case 1:
				delay = fmt.Sprintf("%.3g ms", 1e3*l.DelaySeconds)
			}
			if l.Degraded {
				sure = fmt.Sprintf("%.0f %%", 100*l.Confidence)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\n", strings.Join(append([]string{l.ID}, l.Alike...), " or "), state, loss, delay, sure, since, l.Flows)
		}
	})
}
