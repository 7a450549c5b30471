package policy

import (
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
)

// explore puts a gang with too few measured configurations on the most informative one for an epoch, if its devices are
// free and no job waits (Optimus samples a job before it allocates, section 3.2).
func (o *gains) explore() {
	if slices.ContainsFunc(o.Snapshot.Gangs, func(g *cluster.Gang) bool { return g.Got.Empty() && g.Primary == nil }) {
		return
	}
	for _, g := range o.Candidates {
		if !mayStop(g) || !g.Got.SameShape(g.Held) {
			continue
		}
		free := 0
		for i := range o.Nodes {
			if g.Got.On(i) || o.Spans && g.Servers != nil {
				free += o.Ledger.Most(g, i)
			}
		}
		bounds := curve.SampleBounds{MinWorkers: g.Least, MaxWorkers: min(g.Most, g.Got.Size()+free), MaxServers: g.ServersMost()}
		here := train.Config{Workers: g.Got.Size(), Servers: g.Got.Servers(), Nodes: len(g.Got.Parts), LocalBatch: g.Spec.BatchSize}
		if next, ok := o.nextSample(g, here, bounds); ok && o.change(g, next.Workers, next.Servers) {
			g.Notes.Sampled = true
		}
	}
}

// nextSample is the configuration to learn about next; false if enough is known, if samples could not complete what is
// known, or none is cheap enough.
func (o *gains) nextSample(g *cluster.Gang, here train.Config, bounds curve.SampleBounds) (train.Config, bool) {
	if g.Source() != cluster.FromModel || !g.Model.Speed.Known() {
		return train.Config{}, false
	}
	bounds.Affordable = func(next train.Config) bool {
		next.LocalBatch = here.LocalBatch
		return (next.Workers != here.Workers || next.Servers != here.Servers) && o.affordable(g, here, next)
	}
	return curve.NextSample(g.Spec.SpeedKind(), g.Model.Speed.Measured, bounds)
}

// affordable says whether an epoch on another configuration, with the restarts there and back, costs no more than this
// sample's part of what may be spent on learning: the hysteresis, a share of the remaining time, over all samples.
func (o *gains) affordable(g *cluster.Gang, from, to train.Config) bool {
	here, known := g.Model.EpochSecondsOn(from, g.Spec.StepsIn)
	there, _ := g.Model.EpochSecondsOn(to, g.Spec.StepsIn)
	left, _ := g.Model.RemainingSeconds(from, g.Done(), g.Spec.StopRule(), g.Spec.StepsIn)
	price := 2*o.RestartSeconds(g) + math.Max(there-here, 0)
	return known && price <= o.Tuning.Hysteresis*left.Expected/float64(curve.EnoughSamples(g.Spec.SpeedKind()))
}

// change gives a gang another size; false, and nothing is changed, if there is no room for it.
func (o *gains) change(g *cluster.Gang, workers, servers int) bool {
	mark := o.Ledger.Mark()
	ok := o.Ledger.Take(g, g.Got.Lesser(workers, servers))
	for ok && (g.Got.Size() < workers || g.Got.Servers() < servers) {
		t := task{workers: 1}
		if g.Got.Size() >= workers {
			t = task{servers: 1}
		}
		p, found := o.larger(g, t)
		ok = found && o.Ledger.Take(g, p)
	}
	if several := g.Servers == nil && len(g.Got.Parts) > 1; !ok || several { // step times over several nodes are not used
		o.Ledger.Undo(mark)
		return false
	}
	return true
}
