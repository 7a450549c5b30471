package policy

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
)

// note records why a job got its batch.
func (m *allocation) note(b *candidate) {
	b.gang.Notes.Batch = nil
	if keepsBatch(b.gang) || b.chosen == nil || b.gang.Got.Empty() {
		return
	}
	curve := m.known.curve(b.gang, m.pools[b.chosen.pool].Model)
	b.gang.Notes.Batch = curve.notes(b.gang, b.gang.Got.Size(), len(b.gang.Got.Parts))
}

// notes compares the batch of a gang with its neighbours in the row from which best chose it.
func (c *speedCurve) notes(g *cluster.Gang, devices, nodes int) *cluster.BatchNotes {
	row := c.row(devices, nodes)
	at := slices.IndexFunc(row, func(p pace) bool { return p.batch == g.Batch })
	if at < 0 || c.truth != nil {
		return nil
	}
	noise := c.noiseOf(g)
	n := &cluster.BatchNotes{NoiseUnknown: !noise.known(), AtLeast: at == 0, AtMost: at == len(row)-1}
	if noise.known() {
		_, expected := bestPace(row, noise, float64(c.limits.BaseBatch), pace.expected)
		n.Tried = at > expected
	}
	for i := max(at-1, 0); i <= min(at+1, len(row)-1); i++ {
		option := row[i].option(noise, c.limits.BaseBatch)
		option.Chosen = i == at
		n.Options = append(n.Options, option)
	}
	return n
}

// option is a pace in the words of a plan.
func (p pace) option(noise noiseCurve, base int) train.BatchOption {
	o := train.BatchOption{Batch: p.batch, GlobalBatch: int(p.global), StepSeconds: p.seconds}
	if noise.known() {
		gain := noise.gain(float64(base), p.global)
		o.Efficiency, o.Goodput = gain*float64(base)/p.global, gain/p.seconds
	}
	return o
}
