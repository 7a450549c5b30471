package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/fabric"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// netTopology is what `net topology` writes.
type netTopology struct {
	Vertices []netVertex `json:"vertices"`
	Links    []netLink   `json:"links"`
}

type netVertex struct {
	Name string      `json:"name"`
	Tier fabric.Tier `json:"tier"`
}

type netLink struct {
	ID fabric.LinkID `json:"id"`
	A  string        `json:"a"`
	B  string        `json:"b"`
}

func (a *app) netTopologyCommand() *cobra.Command {
	var (
		network fabricFlags
		picture string
		lossy   []string
		live    bool
	)
	cmd := &cobra.Command{
		Use:   "topology",
		Short: "Show what is connected to what, also as a picture",
		Long: `Shows a network, and draws it with --svg: links that lose packets red, slow ones orange, those that are well green and those of which nothing is known grey. With --live
their states are those that the bus has; without --topology the network then is what the paths of probes show of it.`,
		Example: `  switchyard net topology --topology yard.yaml
  switchyard net topology --topology fattree:4 --loss agg-0-0=7Erack-0-0=0.02 --svg network.svg
  switchyard net topology --live --svg now.svg`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			states, err := parseLosses(lossy)
			if err != nil {
				return err
			}
			var ways []fabric.Seen
			if live {
				if err := a.withBus(cmd, func(ctx context.Context, b *bus.Bus) error {
					ways, err = readLive(ctx, b, states)
					return err
				}); err != nil {
					return err
				}
			}
			t, err := network.shown(live, ways)
			if err != nil {
				return err
			}
			if err := a.reportForeign(t, states, live); err != nil {
				return err
			}
			if picture != "" {
				if err := drawNetwork(picture, t, states); err != nil {
					return err
				}
			}
			return a.writeTopology(t)
		},
	}
	network.addOptional(cmd)
	cmd.Flags().StringVar(&picture, "svg", "", "`file` for a picture, links coloured by their state")
	cmd.Flags().StringArrayVar(&lossy, "loss", nil, "`LINK=PART` of the packets that a link loses, for the picture; may be repeated")
	cmd.Flags().BoolVar(&live, "live", false, "the states of links that the bus has now")
	return cmd
}

// reportForeign tells of links in trouble that the network does not have, and refuses such as the user has named.
func (a *app) reportForeign(t *fabric.Topology, states map[fabric.LinkID]fabric.State, live bool) error {
	for _, id := range t.Foreign(states) {
		switch state := states[id]; {
		case !live:
			return failure(ExitUsage, "`switchyard net topology` lists the links", "--loss %s: the network has no such link", id)
		case state != fabric.State{}:
			_, _ = fmt.Fprintf(a.stderr, "not in the picture: the link %s, which loses %.3g %% or is %.3g ms slow, is none of the network that was named\n", id, 100*state.Loss, 1e3*state.DelaySeconds)
		}
	}
	return nil
}

// shown is the network that was named, or what was seen of the live one.
func (f *fabricFlags) shown(live bool, ways []fabric.Seen) (*fabric.Topology, error) {
	switch {
	case f.topology != "":
		loaded, err := f.read()
		return loaded.topology, err
	case !live:
		return nil, failure(ExitUsage, "", "name a network with --topology, or --live for what probes show of the one that the bus tells of")
	case len(ways) == 0:
		return nil, failure(ExitError, "node agents probe with --probe-listen", "no path of the network is probed")
	}
	return fabric.FromSeen(ways), nil
}

// readLive gives the ways of all probes, and adds the states of their links.
func readLive(ctx context.Context, b *bus.Bus, states map[fabric.LinkID]fabric.State) ([]fabric.Seen, error) {
	lists, err := listBucket[train.Pinglist](ctx, b, event.BucketProbes)
	if err != nil {
		return nil, err
	}
	links, err := listBucket[train.Link](ctx, b, event.BucketLinks)
	if err != nil {
		return nil, err
	}
	return liveNetwork(lists, links, states), nil
}

func liveNetwork(lists []train.Pinglist, links []train.Link, states map[fabric.LinkID]fabric.State) []fabric.Seen {
	var ways []fabric.Seen
	for _, list := range lists {
		for _, f := range list.Probes {
			way := fabric.Seen{From: string(f.From), To: string(f.To)}
			for _, l := range f.Links {
				way.Links = append(way.Links, fabric.LinkID(l))
				states[fabric.LinkID(l)] = fabric.State{}
			}
			ways = append(ways, way)
		}
	}
	for _, l := range links {
		if l.Degraded {
			states[fabric.LinkID(l.ID)] = fabric.State{Loss: l.Loss, DelaySeconds: l.DelaySeconds}
		}
	}
	return ways
}

// parseLosses reads LINK=PART.
func parseLosses(lossy []string) (map[fabric.LinkID]fabric.State, error) {
	states := map[fabric.LinkID]fabric.State{}
	for _, s := range lossy {
		at := strings.LastIndexByte(s, '=')
		part, err := strconv.ParseFloat(s[at+1:], 64)
		if at < 0 || err != nil || part < 0 || part > 1 {
			return nil, failure(ExitUsage, "", "--loss %q: want LINK=PART, the part from 0 to 1", s)
		}
		states[fabric.LinkID(s[:at])] = fabric.State{Loss: part}
	}
	return states, nil
}

func drawNetwork(path string, t *fabric.Topology, states map[fabric.LinkID]fabric.State) error {
	var b strings.Builder
	if err := t.Draw(&b, states); err != nil {
		return runtime(err)
	}
	return runtime(os.WriteFile(path, []byte(b.String()), 0o644))
}

func (a *app) writeTopology(t *fabric.Topology) error {
	out := netTopology{Vertices: []netVertex{}, Links: []netLink{}}
	for _, v := range t.Vertices {
		out.Vertices = append(out.Vertices, netVertex{v.Name, v.Tier})
	}
	for _, l := range t.Links {
		out.Links = append(out.Links, netLink{l.ID, t.Vertices[l.A].Name, t.Vertices[l.B].Name})
	}
	if a.output == "json" {
		return a.printJSON(out)
	}
	return a.table("LINK\tFROM\tTO", func(w io.Writer) {
		for _, l := range out.Links {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", escapeText(string(l.ID)), escapeText(l.A), escapeText(l.B))
		}
	})
}
