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
	"github.com/switchyard-dl/switchyard/cmd/switchyard/render"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
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
			return a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error {
				if watch {
					return topForever(ctx, a, b)
				}
				picture, err := takePicture(ctx, b, time.Now())
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
func topForever(ctx context.Context, a *console.Console, b *bus.Bus) error {
	const clear = "\x1b[H\x1b[2J"
	for {
		picture, err := takePicture(ctx, b, time.Now())
		if ctx.Err() != nil {
			return nil //nolint:nilerr // an interrupt is the usual end
		}
		_, _ = io.WriteString(a.Stdout, clear)
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

// takePicture reads the nodes, and the jobs on each device.
func takePicture(ctx context.Context, b *bus.Bus, now time.Time) ([]topNode, error) {
	nodes, err := console.ListBucket(ctx, b, contract.Nodes)
	if err != nil {
		return nil, err
	}
	attempts, err := console.ListBucket(ctx, b, contract.Attempts)
	if err != nil {
		return nil, err
	}
	jobs, err := console.ListBucket(ctx, b, contract.Jobs)
	if err != nil {
		return nil, err
	}
	accounts, err := console.JobAccounts(ctx, b)
	if err != nil {
		return nil, err
	}
	plan, err := console.LastPlan(ctx, b)
	if err != nil {
		return nil, err
	}
	held := holders(attempts, jobs, accounts, plan, now)
	picture := make([]topNode, 0, len(nodes))
	for _, n := range nodes {
		subject := event.Subject{Entity: "energy", ID: string(n.ID), Fact: event.FactMeasured, Version: 1}
		last, _, err := console.LastIfThere[event.Measured](ctx, b, event.StreamSamples, subject)
		if err != nil {
			return nil, err
		}
		picture = append(picture, newTopNode(n, last, held, now))
	}
	slices.SortFunc(picture, func(x, y topNode) int { return strings.Compare(string(x.ID), string(y.ID)) })
	return picture, nil
}

// devicePlace names a device in the cluster.
type devicePlace struct {
	node   train.NodeID
	device train.DeviceID
}

// holders returns the jobs on each device.
func holders(attempts []train.Attempt, jobs []train.Job, accounts map[train.JobID]train.Account, plan train.Plan, now time.Time) map[devicePlace][]topJob {
	known := make(map[train.JobID]train.Job, len(jobs))
	for _, j := range jobs {
		known[j.ID] = j
	}
	held := map[devicePlace][]topJob{}
	for _, attempt := range attempts {
		if !attempt.Live() {
			continue
		}
		j, account := known[attempt.Job], accounts[attempt.Job]
		methods := []string{}
		if len(account.Methods) > 0 {
			methods = account.Methods
		}
		predicted := plan.Predicted(attempt.Job)
		for _, part := range attempt.Places() {
			for _, device := range part.Devices {
				at := devicePlace{part.Node, device}
				held[at] = append(held[at], topJob{
					ID: attempt.Job, State: j.State, EpochsDone: j.EpochsDone, MaxEpochs: j.Spec.MaxEpochs, MeanPower: account.MeanPower, Methods: methods,
					Predicted: predicted, eta: render.ETA(predicted, now),
				})
			}
		}
	}
	for _, list := range held {
		slices.SortFunc(list, func(x, y topJob) int { return strings.Compare(string(x.ID), string(y.ID)) })
	}
	return held
}

// powerStale is the age at which the last reading of a meter says nothing about the present.
const powerStale = time.Minute

func newTopNode(n train.Node, last event.Measured, held map[devicePlace][]topJob, now time.Time) topNode {
	seen := now.Sub(n.SeenAt)
	t := topNode{ID: n.ID, Cores: n.Cores, Memory: n.Memory, SeenSeconds: max(seen.Seconds(), 0), Alive: seen < train.NodeStale, Methods: []string{}, Devices: []topDevice{}}
	seconds, perDevice := last.To.Sub(last.From).Seconds(), map[train.DeviceID]unit.Power{}
	if seconds > 0 && now.Sub(last.To) < powerStale {
		var total unit.Energy
		for _, m := range last.Meters {
			if m.Component == event.ComponentNode { // the others are part of it
				continue
			}
			total += m.Energy
			if m.Device != "" {
				perDevice[m.Device] += unit.Watts(m.Energy.Joules() / seconds)
			}
			t.Methods = append(t.Methods, m.Method)
		}
		power := unit.Watts(total.Joules() / seconds)
		t.Power = &power
		slices.Sort(t.Methods)
		t.Methods = slices.Compact(t.Methods)
	}
	for _, d := range n.Devices {
		row := topDevice{ID: d.ID, Model: d.Model, Jobs: []topJob{}}
		if power, metered := perDevice[d.ID]; metered {
			row.Power = &power
		}
		if jobs := held[devicePlace{n.ID, d.ID}]; len(jobs) > 0 {
			row.Jobs = jobs
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
