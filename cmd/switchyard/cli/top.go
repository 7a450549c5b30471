package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

func (a *app) topCommand() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the nodes, their devices and the jobs on them",
		Long: `Shows each node with its power as last measured, and each device with the jobs that hold it. JOB-POWER is the mean power of a job over its time so far.
A figure with ~ is modelled, not measured.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch && (a.output == "json" || !isTerminal(a.stdout)) {
				return failure(ExitUsage, "leave -w out for one picture", "-w draws on a terminal")
			}
			return a.withBus(cmd, func(ctx context.Context, b *bus.Bus) error {
				if watch {
					return a.topForever(ctx, b)
				}
				picture, err := takePicture(ctx, b, time.Now())
				if err != nil {
					return err
				}
				return a.printTop(picture)
			})
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "draw again every second until interrupted")
	return cmd
}

// topForever draws a picture every second until ctx ends.
func (a *app) topForever(ctx context.Context, b *bus.Bus) error {
	const clear = "\x1b[H\x1b[2J"
	for {
		picture, err := takePicture(ctx, b, time.Now())
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the person has seen enough
		}
		_, _ = io.WriteString(a.stdout, clear)
		if err != nil {
			_, _ = fmt.Fprintf(a.stdout, "%v; trying again\n", err)
		} else if err := a.printTop(picture); err != nil {
			return err
		}
		if !pause(ctx, time.Second) {
			return nil
		}
	}
}

// topNode is a node and what is on it.
type topNode struct {
	ID     train.NodeID `json:"id"`
	Cores  int          `json:"cores"`
	Memory unit.Bytes   `json:"memory_bytes"`
	// SeenSeconds is how long ago the node's agent last wrote; Alive says whether that is recent.
	SeenSeconds float64 `json:"seen_seconds_ago"`
	Alive       bool    `json:"alive"`
	// Power is that of the last measured interval; nil where there is none that is recent.
	Power   *unit.Power `json:"power_uw,omitempty"`
	Methods []string    `json:"power_methods"`
	Devices []topDevice `json:"devices"`
}

// topDevice is a device and the jobs that hold it.
type topDevice struct {
	ID    train.DeviceID `json:"id"`
	Model string         `json:"model"`
	// Power is the device's own, where it is metered.
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
}

// takePicture reads who holds what.
func takePicture(ctx context.Context, b *bus.Bus, now time.Time) ([]topNode, error) {
	nodes, err := listBucket[train.Node](ctx, b, event.BucketNodes)
	if err != nil {
		return nil, err
	}
	attempts, err := listBucket[train.Attempt](ctx, b, event.BucketAttempts)
	if err != nil {
		return nil, err
	}
	jobs, err := listBucket[train.Job](ctx, b, event.BucketJobs)
	if err != nil {
		return nil, err
	}
	accounts, err := jobAccounts(ctx, b)
	if err != nil {
		return nil, err
	}
	held := holders(attempts, jobs, accounts)
	picture := make([]topNode, 0, len(nodes))
	for _, n := range nodes {
		subject := event.Subject{Entity: "energy", ID: string(n.ID), Fact: event.FactMeasured, Version: 1}
		last, _, err := lastIfThere[event.Measured](ctx, b, event.StreamSamples, subject)
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

// holders tells which jobs hold each device.
func holders(attempts []train.Attempt, jobs []train.Job, accounts map[train.JobID]train.Account) map[devicePlace][]topJob {
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
		for _, part := range attempt.Places() {
			for _, device := range part.Devices {
				at := devicePlace{part.Node, device}
				held[at] = append(held[at], topJob{
					ID: attempt.Job, State: j.State, EpochsDone: j.EpochsDone, MaxEpochs: j.Spec.MaxEpochs, MeanPower: account.MeanPower, Methods: methods,
				})
			}
		}
	}
	for _, list := range held {
		slices.SortFunc(list, func(x, y topJob) int { return strings.Compare(string(x.ID), string(y.ID)) })
	}
	return held
}

// nodeStale is how old the sign of life of a node may be: agents write every few seconds. powerStale is the same for its meters.
const (
	nodeStale  = 20 * time.Second
	powerStale = time.Minute
)

func newTopNode(n train.Node, last event.Measured, held map[devicePlace][]topJob, now time.Time) topNode {
	seen := now.Sub(n.SeenAt)
	t := topNode{ID: n.ID, Cores: n.Cores, Memory: n.Memory, SeenSeconds: max(seen.Seconds(), 0), Alive: seen < nodeStale, Methods: []string{}, Devices: []topDevice{}}
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

func (a *app) printTop(nodes []topNode) error {
	if a.output == "json" {
		return a.printJSON(nodes)
	}
	if len(nodes) == 0 {
		_, _ = fmt.Fprintln(a.stderr, "no nodes: `switchyard up` or a node agent brings one")
		return nil
	}
	err := a.table("NODE\tCORES\tMEMORY\tDEVICES\tBUSY\tPOWER\tMETERS\tSEEN", func(w io.Writer) {
		for _, n := range nodes {
			_, _ = fmt.Fprintln(w, n.line())
		}
	})
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(a.stdout)
	return a.table("NODE\tDEVICE\tMODEL\tPOWER\tJOB\tSTATE\tEPOCH\tJOB-POWER", func(w io.Writer) {
		for _, n := range nodes {
			for _, d := range n.Devices {
				for _, line := range d.lines(n.ID) {
					_, _ = fmt.Fprintln(w, line)
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
	power, seen := "-", duration(n.SeenSeconds)+" ago"
	if n.Power != nil {
		power = modelledMark(n.Methods) + watts(*n.Power)
	}
	if !n.Alive {
		seen += ", gone?"
	}
	return fmt.Sprintf("%s\t%d\t%s\t%d\t%d\t%s\t%s\t%s", n.ID, n.Cores, n.Memory, len(n.Devices), busy, power, dash(strings.Join(n.Methods, "+")), seen)
}

func (d topDevice) lines(node train.NodeID) []string {
	const modelWidth = 28
	power := "-"
	if d.Power != nil {
		power = watts(*d.Power)
	}
	head := fmt.Sprintf("%s\t%s\t%s\t%s", node, d.ID, cell(d.Model, modelWidth), power)
	if len(d.Jobs) == 0 {
		return []string{head + "\t-\tidle\t-\t-"}
	}
	var lines []string
	for _, j := range d.Jobs {
		mean := "-"
		if len(j.Methods) > 0 {
			mean = modelledMark(j.Methods) + watts(j.MeanPower)
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%d/%d\t%s", head, j.ID, dash(string(j.State)), j.EpochsDone, j.MaxEpochs, mean))
	}
	return lines
}

func watts(p unit.Power) string { return fmt.Sprintf("%.1f W", p.Watts()) }
