package eligible

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// What sets a node or a device aside: the loss of enough different jobs within the window. A crash under several jobs
// counts once: each loss that counts began after the one before it, or ended apart from it. The rest lasts from the
// latest loss. Since older losses still count then, the next one soon after sets it aside again.
const (
	enough = 3
	window = time.Hour
	apart  = 10 * time.Minute
	rest   = 30 * time.Minute
)

// mostLosses bounds a record.
const mostLosses = 32

// Lose enters a loss. It returns false, and changes nothing, if the record has it, or an operator has resumed the node
// since.
func Lose(e *train.Eligibility, l train.NodeLoss) bool {
	if !l.At.After(e.Resumed) || slices.ContainsFunc(e.Losses, l.Same) {
		return false
	}
	l.How = clip(l.How)
	e.Losses = append(e.Losses, l)
	slices.SortStableFunc(e.Losses, func(x, y train.NodeLoss) int { return x.At.Compare(y.At) })
	newest := e.Losses[len(e.Losses)-1].At
	e.Losses = slices.DeleteFunc(e.Losses, func(o train.NodeLoss) bool { return newest.Sub(o.At) > window })
	e.Losses = e.Losses[max(len(e.Losses)-mostLosses, 0):]
	return true
}

// Verdict is what is to be set aside after a loss.
type Verdict struct {
	// Devices are empty for the whole node.
	Devices []train.DeviceID
	Losses  []train.NodeLoss
	Until   time.Time
}

// Why names the losses in words.
func (v Verdict) Why() string {
	var jobs []string
	for _, l := range v.Losses {
		jobs = append(jobs, fmt.Sprintf("%s (%s)", l.Job, l.How))
	}
	return fmt.Sprintf("%d jobs were lost on it within an hour: %s", len(jobs), strings.Join(jobs, ", "))
}

// Judge decides what an attempt that was lost on a node sets aside; false for nothing. known are the records of all
// nodes, count is how many nodes there are. GPUs are set aside before their node, and neither more than half of the
// GPUs of a node, nor more than half of the nodes: when everything fails, the nodes are not to blame.
func Judge(known map[train.NodeID]train.Eligibility, n train.Node, count int, loss train.NodeLoss) (Verdict, bool) {
	e := known[n.ID]
	at := slices.IndexFunc(e.Losses, loss.Same)
	if at < 0 {
		return Verdict{}, false // an operator has resumed the node since
	}
	latest := e.Losses[at]
	losses := slices.DeleteFunc(slices.Clone(e.Losses[:at+1]), func(l train.NodeLoss) bool {
		return latest.At.Sub(l.At) > window || lostWithout(known, n.ID, l.Job)
	})
	v, few := blameGPUs(e, n, losses, latest)
	if len(v.Devices) > 0 && few {
		return v, true
	}
	if len(v.Devices) == 0 { // what a GPU explains that is set aside says nothing about the others
		losses = slices.DeleteFunc(losses, func(l train.NodeLoss) bool {
			return slices.ContainsFunc(l.Devices, func(d train.DeviceID) bool { return latest.At.Before(e.Aside[d].Until) })
		})
	}
	v = Verdict{Losses: inTurn(losses), Until: latest.At.Add(rest)}
	aside := 1
	for id, o := range known {
		if id != n.ID && latest.At.Before(o.Aside[train.WholeNode].Until) {
			aside++
		}
	}
	return v, len(v.Losses) >= enough && v.Losses[len(v.Losses)-1].Same(latest) && 2*aside <= count
}

// blameGPUs returns the GPUs of the latest loss on which enough jobs were lost. few is false if these, and those that
// are set aside already, are more than half of the node's.
func blameGPUs(e train.Eligibility, n train.Node, losses []train.NodeLoss, latest train.NodeLoss) (v Verdict, few bool) {
	v.Until = latest.At.Add(rest)
	aside := 0
	for i := range n.Devices {
		d := n.Devices[i].ID
		if d.Kind() != train.KindGPU {
			continue
		}
		turns := inTurn(ofDevice(losses, d))
		switch here := slices.Contains(latest.Devices, d); {
		case here && len(turns) >= enough:
			v.Devices, v.Losses = append(v.Devices, d), turns
			aside++
		case !here && latest.At.Before(e.Aside[d].Until):
			aside++
		}
	}
	return v, 2*aside <= len(n.Devices)
}

// lostWithout reports whether a job was also lost where a node had no part in it: then the job is to blame.
func lostWithout(known map[train.NodeID]train.Eligibility, n train.NodeID, job train.JobID) bool {
	for id, e := range known {
		for _, l := range e.Losses {
			if id != n && l.Job == job && !slices.ContainsFunc(known[n].Losses, l.Same) {
				return true
			}
		}
	}
	return false
}

func ofDevice(losses []train.NodeLoss, d train.DeviceID) []train.NodeLoss {
	return slices.DeleteFunc(slices.Clone(losses), func(l train.NodeLoss) bool { return !slices.Contains(l.Devices, d) })
}

// inTurn returns the losses of different jobs that do not come from one crash. losses are in the order of their ends.
func inTurn(losses []train.NodeLoss) []train.NodeLoss {
	var turns []train.NodeLoss
	for _, l := range losses {
		again := slices.ContainsFunc(turns, func(o train.NodeLoss) bool { return o.Job == l.Job })
		if again {
			continue
		}
		if i := len(turns) - 1; i < 0 || !l.ClaimedAt.Before(turns[i].At) || l.At.Sub(turns[i].At) >= apart {
			turns = append(turns, l)
		}
	}
	return turns
}
