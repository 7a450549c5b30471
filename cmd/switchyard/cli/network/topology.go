package network

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/fabric"
	"github.com/switchyard-dl/switchyard/libs/render"
)

// netTopology is the result of `net topology`.
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

func netTopologyCommand(a *console.Console) *cobra.Command {
	var (
		network FabricFlags
		picture string
		lossy   []string
		live    bool
	)
	cmd := &cobra.Command{
		Use:   "topology",
		Short: "Show the topology of the network, also as a drawing",
		Long: `Shows a network, and draws it with --svg: links that lose packets red, slow links orange, healthy links green and
unknown links grey. --live takes the states of links from the newest probes and, without --topology, the network from the paths of probes.`,
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
				if err := a.WithYard(cmd, func(ctx context.Context, y console.Yard) error {
					probed, err := y.Probed(ctx)
					ways = probed.Ways
					maps.Copy(states, probed.States())
					return err
				}); err != nil {
					return err
				}
			}
			t, err := network.shown(live, ways)
			if err != nil {
				return err
			}
			if err := reportForeign(a, t, states, live); err != nil {
				return err
			}
			if picture != "" {
				if err := drawNetwork(picture, t, states); err != nil {
					return err
				}
			}
			return writeTopology(a, t)
		},
	}
	network.declareTopology(cmd)
	cmd.Flags().StringVar(&picture, "svg", "", "`file` for a drawing, links coloured by their state")
	cmd.Flags().StringArrayVar(&lossy, "loss", nil, "`LINK=PART` of the packets that a link loses, for the drawing (repeatable)")
	cmd.Flags().BoolVar(&live, "live", false, "take the states of links from the newest probes")
	return cmd
}

// reportForeign names degraded links that the network does not have. It refuses links of --loss that the network does
// not have.
func reportForeign(a *console.Console, t *fabric.Topology, states map[fabric.LinkID]fabric.State, live bool) error {
	for _, id := range t.Foreign(states) {
		switch state := states[id]; {
		case !live:
			return exit.Errorf(exit.Usage, "`switchyard net topology` lists the links", "--loss %s: the network has no such link", id)
		case state != fabric.State{}:
			fmt.Fprintf(a.Stderr, "not in the drawing: link %s, which loses %.3g %% or is %.3g ms slow, is not in the named network\n", id, 100*state.Loss, 1e3*state.DelaySeconds)
		}
	}
	return nil
}

// shown returns the network of --topology, or the network as live probes show it.
func (f *FabricFlags) shown(live bool, ways []fabric.Seen) (*fabric.Topology, error) {
	switch {
	case f.topology != "":
		t, _, err := f.read()
		return t, err
	case !live:
		return nil, exit.Usagef("name a network with --topology, or use --live for the network that live probes show")
	case len(ways) == 0:
		return nil, exit.Errorf(exit.Failed, "set nodeagent.probe_listen", "no path of the network is probed")
	}
	return fabric.FromSeen(ways), nil
}

// parseLosses reads LINK=PART.
func parseLosses(lossy []string) (map[fabric.LinkID]fabric.State, error) {
	states := map[fabric.LinkID]fabric.State{}
	for _, s := range lossy {
		at := strings.LastIndexByte(s, '=')
		part, err := strconv.ParseFloat(s[at+1:], 64)
		if at < 0 || err != nil || part < 0 || part > 1 {
			return nil, exit.Usagef("--loss %q: want LINK=PART, the part from 0 to 1", s)
		}
		states[fabric.LinkID(s[:at])] = fabric.State{Loss: part}
	}
	return states, nil
}

func drawNetwork(path string, t *fabric.Topology, states map[fabric.LinkID]fabric.State) error {
	var b strings.Builder
	if err := t.Draw(&b, states); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

func writeTopology(a *console.Console, t *fabric.Topology) error {
	out := netTopology{Vertices: []netVertex{}, Links: []netLink{}}
	for _, v := range t.Vertices {
		out.Vertices = append(out.Vertices, netVertex{v.Name, v.Tier})
	}
	for _, l := range t.Links {
		out.Links = append(out.Links, netLink{l.ID, t.Vertices[l.A].Name, t.Vertices[l.B].Name})
	}
	return a.Show(out, "LINK\tFROM\tTO", func(w io.Writer) {
		for _, l := range out.Links {
			fmt.Fprintf(w, "%s\t%s\t%s\n", render.EscapeText(string(l.ID)), render.EscapeText(l.A), render.EscapeText(l.B))
		}
	})
}
