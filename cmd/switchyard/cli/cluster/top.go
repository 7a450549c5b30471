package cluster

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

func topCommand(a *console.Console) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the nodes, their devices and the jobs on them",
		Long: `Shows each node with its last known power, and each device with its jobs. ETA is the predicted time to a job's end, JOB-POWER the mean power of a job over its time so far.
A figure with ~ is modelled, not measured.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch && (a.Output == "json" || !render.IsTerminal(a.Stdout)) {
				return exit.Errorf(exit.Usage, "leave -w out to print once", "-w draws on a terminal")
			}
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error {
				if watch {
					return topForever(ctx, a, y)
				}
				picture, err := rowsOf(ctx, y, time.Now(), newTopNode)
				if err != nil {
					return err
				}
				return printTop(a, picture)
			})
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "redraw every second until interrupted")
	return cmd
}

// topForever draws the cluster every second until ctx ends.
func topForever(ctx context.Context, a *console.Console, y console.Yard) error {
	const clear = "\x1b[H\x1b[2J"
	for {
		picture, err := rowsOf(ctx, y, time.Now(), newTopNode)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // an interrupt is the usual end
		}
		_, _ = io.WriteString(render.Raw(a.Stdout), clear)
		if err != nil {
			fmt.Fprintf(a.Stdout, "%v; trying again\n", err)
		} else if err := printTop(a, picture); err != nil {
			return err
		}
		if !tick.Pause(ctx, time.Second) {
			return nil
		}
	}
}

// topNode is a node and what is on it.
type topNode struct {
	ID     train.NodeID `json:"id"`
	Cores  int          `json:"cores"`
	Memory unit.Bytes   `json:"memory_bytes"`
	// SeenSeconds is the time since the node's agent last wrote. Alive says whether that is recent.
	SeenSeconds float64 `json:"seen_seconds_ago"`
	Alive       bool    `json:"alive"`
	// Power is the mean of the last measured interval, or nil if none is recent.
	Power   *unit.Power `json:"power_uw,omitempty"`
	Methods []string    `json:"power_methods"`
	Devices []topDevice `json:"devices"`
}

// topDevice is a device and the jobs that hold it.
type topDevice struct {
	ID    train.DeviceID `json:"id"`
	Model string         `json:"model"`
	// Power is the device's own, if it has a meter.
	Power *unit.Power `json:"power_uw,omitempty"`
	Jobs  []topJob    `json:"jobs"`
}

// topJob is a job on a device.
type topJob struct {
	ID         train.JobID `json:"id"`
	State      train.State `json:"state"`
	EpochsDone int         `json:"epochs_done"`
	MaxEpochs  int         `json:"max_epochs"`
	MeanPower  unit.Power  `json:"mean_uw"`
	Methods    []string    `json:"power_methods"`
	// Predicted is when it ends by the newest plan; eta is that in words.
	Predicted train.Predicted `json:"predicted,omitzero"`
	eta       string
}

// newTopNode is a node with the jobs on each of its devices.
func newTopNode(n *view.Node, now time.Time) topNode {
	seen := now.Sub(n.SeenAt)
	t := topNode{ID: n.ID, Cores: n.Cores, Memory: n.Memory, SeenSeconds: max(seen.Seconds(), 0), Alive: seen < train.NodeStale, Methods: []string{}, Devices: []topDevice{}}
	perDevice := map[train.DeviceID]unit.Power{}
	if n.Power != nil {
		t.Power, t.Methods, perDevice = &n.Power.Node, n.Power.Methods, n.Power.Devices
	}
	for _, d := range n.Devices {
		row := topDevice{ID: d.ID, Model: d.Model, Jobs: []topJob{}}
		if power, metered := perDevice[d.ID]; metered {
			row.Power = &power
		}
		for _, j := range n.Jobs {
			if slices.Contains(j.Devices, d.ID) {
				row.Jobs = append(row.Jobs, topJob{
					ID: j.ID, State: j.State, EpochsDone: j.EpochsDone, MaxEpochs: j.MaxEpochs, MeanPower: j.MeanPower, Methods: j.Methods,
					Predicted: j.Predicted, eta: render.ETA(j.Predicted, now),
				})
			}
		}
		t.Devices = append(t.Devices, row)
	}
	return t
}

func printTop(a *console.Console, nodes []topNode) error {
	if a.Output == "json" {
		return a.PrintJSON(nodes)
	}
	if len(nodes) == 0 {
		fmt.Fprintln(a.Stderr, "no nodes: start `switchyard up` or a node agent")
		return nil
	}
	err := a.Table("NODE\tCORES\tMEMORY\tDEVICES\tBUSY\tPOWER\tMETERS\tSEEN", func(w io.Writer) {
		for _, n := range nodes {
			fmt.Fprintln(w, n.line())
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(a.Stdout)
	return a.Table("NODE\tDEVICE\tMODEL\tPOWER\tJOB\tSTATE\tEPOCH\tETA\tJOB-POWER", func(w io.Writer) {
		for _, n := range nodes {
			for _, d := range n.Devices {
				for _, line := range d.lines(n.ID) {
					fmt.Fprintln(w, line)
				}
			}
		}
	})
}

func (n topNode) line() string {
	busy := 0
	for _, d := range n.Devices {
		if len(d.Jobs) > 0 {
			busy++
		}
	}
	power, seen := "-", render.Duration(n.SeenSeconds)+" ago"
	if n.Power != nil {
		power = render.ModelledMark(n.Methods) + watts(*n.Power)
	}
	if !n.Alive {
		seen += ", gone?"
	}
	return fmt.Sprintf("%s\t%d\t%s\t%d\t%d\t%s\t%s\t%s", n.ID, n.Cores, n.Memory, len(n.Devices), busy, power, render.Dash(strings.Join(n.Methods, "+")), seen)
}

func (d topDevice) lines(node train.NodeID) []string {
	const modelWidth = 28
	power := "-"
	if d.Power != nil {
		power = watts(*d.Power)
	}
	head := fmt.Sprintf("%s\t%s\t%s\t%s", node, d.ID, render.Cell(d.Model, modelWidth), power)
	if len(d.Jobs) == 0 {
		return []string{head + "\t-\tidle\t-\t-\t-"}
	}
	var lines []string
	for _, j := range d.Jobs {
		mean := "-"
		if len(j.Methods) > 0 {
			mean = render.ModelledMark(j.Methods) + watts(j.MeanPower)
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", head, j.ID, render.Dash(string(j.State)), render.Epochs(j.EpochsDone, j.MaxEpochs), j.eta, mean))
	}
	return lines
}

func watts(p unit.Power) string { return fmt.Sprintf("%.1f W", p.Watts()) }
