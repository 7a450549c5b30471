package cli

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

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func (a *app) netStatusCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Which links of the network lose or delay packets, and which nodes nothing can be judged of",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withBus(cmd, func(ctx context.Context, b *bus.Bus) error {
				status, err := readNetStatus(ctx, b, all)
				if err != nil {
					return err
				}
				return a.printNetStatus(status, time.Now())
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every link that is probed, not only those that lose or delay packets, or did so within the hour")
	return cmd
}

func (a *app) netWatchCommand() *cobra.Command {
	var past bool
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Follow which links come to lose or delay packets and which recover",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer b.Close()
			return runtime(a.follow(cmd.Context(), b, []string{event.StreamNet}, past, false, ""))
		},
	}
	cmd.Flags().BoolVar(&past, "all", false, "from the oldest stored fact on")
	return cmd
}

// netStatus is what is probed and what came of it.
type netStatus struct {
	// Nodes are those that probe, Flows the paths that they probe, ProbedLinks the links on these.
	Nodes       int             `json:"nodes"`
	Flows       int             `json:"flows"`
	ProbedLinks int             `json:"probed_links"`
	Links       []netStatusLink `json:"links"`
	// Ailing are the nodes whose probes said nothing of links in the last window, which ended at JudgedAt.
	Ailing   []train.AilingNode `json:"ailing"`
	JudgedAt *time.Time         `json:"judged_at,omitempty"`
}

// netStatusLink is a link with how many probed paths cross it.
type netStatusLink struct {
	train.Link
	Flows int `json:"flows"`
}

func readNetStatus(ctx context.Context, b *bus.Bus, all bool) (netStatus, error) {
	lists, err := listBucket[train.Pinglist](ctx, b, event.BucketProbes)
	if err != nil {
		return netStatus{}, err
	}
	links, err := listBucket[train.Link](ctx, b, event.BucketLinks)
	if err != nil {
		return netStatus{}, err
	}
	judged, found, err := lastIfThere[event.LinksJudged](ctx, b, event.StreamSamples, event.JudgedSubject(0))
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

// newNetStatus counts what is probed; all takes in the links of which nothing was ever wrong.
func newNetStatus(lists []train.Pinglist, links []train.Link, all bool) netStatus {
	status := netStatus{Nodes: len(lists), Links: []netStatusLink{}, Ailing: []train.AilingNode{}}
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

// linkOrder puts links that lose packets first, then those that are slow, then those that were either.
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

func (a *app) printNetStatus(s netStatus, now time.Time) error {
	if a.output == "json" {
		return a.printJSON(s)
	}
	if s.Nodes == 0 {
		_, _ = fmt.Fprintln(a.stderr, "no node probes the network: node agents do with --probe-listen")
		return nil
	}
	judged := "none was judged lately"
	if s.JudgedAt != nil {
		judged = "judged " + now.Sub(*s.JudgedAt).Round(time.Second).String() + " ago"
	}
	_, _ = fmt.Fprintf(a.stdout, "%d nodes probe %d paths over %d links, %s\n", s.Nodes, s.Flows, s.ProbedLinks, judged)
	if err := a.printNetLinks(s.Links, now); err != nil || len(s.Ailing) == 0 {
		return err
	}
	_, _ = fmt.Fprintln(a.stdout, "\nprobes of these nodes say nothing of links")
	return a.table("NODE\tWHY\tMEANING", func(w io.Writer) {
		for _, n := range s.Ailing {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", n.Node, n.Why, meaning(n))
		}
	})
}

// meaning says in words what a node suffers from.
func meaning(n train.AilingNode) string {
	switch n.Why {
	case train.NodeIsSilent:
		return "does not tell what it sent or received"
	case train.NodeIsStalled:
		return "its agent did not get to run"
	case train.NodeHasClockSkew:
		order := "behind"
		if n.BehindSeconds < 0 {
			order = "ahead of"
		}
		return fmt.Sprintf("its clock is %.3g s %s others", math.Abs(n.BehindSeconds), order)
	}
	return "-"
}

func (a *app) printNetLinks(links []netStatusLink, now time.Time) error {
	if len(links) == 0 {
		_, _ = fmt.Fprintln(a.stdout, "no link loses or delays packets")
		return nil
	}
	return a.table("LINK\tSTATE\tLOSS\tDELAY\tCONFIDENCE\tSINCE\tPATHS", func(w io.Writer) {
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
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\n", strings.Join(append([]string{l.ID}, l.Alike...), " or "), state, loss, delay, sure, since, l.Flows)
		}
	})
}
