package cluster

import (
	"cmp"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// predicted are remaining times by number of devices, computed when first asked for.
type predicted struct {
	source Source
	// guess is the remaining time on Least devices without a model.
	guess float64
	// seconds are by devices beyond Least; NaN: not yet computed.
	seconds []float64
	// epochsLeft are expected by the model.
	epochsLeft float64
}

// Source tells what a prediction rests on.
type Source int

// The sources.
const (
	FromNothing Source = iota
	FromUser
	FromModel
)

// Predict predicts how long each gang will take, from its model, the user or the other gangs.
func (s *Snapshot) Predict() {
	var known []float64
	widest := s.Widest(AnyNode)
	for _, g := range s.Gangs {
		p := &g.predicted
		p.seconds = slices.Repeat([]float64{math.NaN()}, 1+max(min(g.Most, widest)-g.Least, 0))
		if m := g.Model; m != nil && g.Spec.Epochs() > 0 && m.Times(&g.Spec) {
			p.source, p.epochsLeft = FromModel, m.EpochsLeft(g.Done(), g.Spec.StopRule()).Expected
			known = append(known, g.Remaining(g.Least)/g.Ahead())
			continue
		}
		if declared := g.Spec.EstimatedHours * 3600; declared > 0 {
			// What has run is taken off, but a job that outruns its estimate is not assumed to be done.
			p.source, p.guess = FromUser, math.Max(declared-g.RunSeconds, declared/10)
			known = append(known, declared)
		}
	}
	s.TypicalSeconds = s.Tuning.UnknownSeconds
	if len(known) > 0 {
		slices.Sort(known)
		s.TypicalSeconds = known[len(known)/2]
	}
	for _, g := range s.Gangs {
		if g.predicted.source == FromNothing {
			g.predicted.guess = s.TypicalSeconds * g.Ahead()
		}
	}
}

// Source is what the predictions of a gang rest on.
func (g *Gang) Source() Source { return g.predicted.source }

// Ahead is the part of the training that has not been done. A job at its end is assumed to be nearly there.
func (g *Gang) Ahead() float64 {
	if g.Spec.Epochs() <= 0 {
		return 1
	}
	const least = 0.01
	return math.Max(1-g.Done()/g.Spec.Epochs(), least)
}

// Done is how many epochs are done, fractions included if the job reports its steps.
func (g *Gang) Done() float64 { return cmp.Or(g.Job.Done, float64(g.EpochsDone)) }

// Widest is the size of the largest node that suits, or if gangs may span nodes, the largest number of devices of one
// model in one realm.
func (s *Snapshot) Widest(suits func(*Node) bool) int {
	most, byModel := 0, map[string]int{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if !suits(n) {
			continue
		}
		size := n.Room()
		if s.Spans {
			size += byModel[n.Model+n.Realm]
			byModel[n.Model+n.Realm] = size
		}
		most = max(most, size)
	}
	return most
}

// AnyNode suits every node.
func AnyNode(*Node) bool { return true }

// Remaining is the predicted time to the end, in seconds, on the given number of devices of one node from now on.
func (g *Gang) Remaining(devices int) float64 {
	i := devices - g.Least
	if i < 0 || i >= len(g.predicted.seconds) {
		return g.computeOn(g.config(devices, 1))
	}
	if math.IsNaN(g.predicted.seconds[i]) {
		g.predicted.seconds[i] = g.computeOn(g.config(devices, 1))
	}
	return g.predicted.seconds[i]
}

// RemainingOn is Remaining on devices of the given number of nodes.
func (g *Gang) RemainingOn(devices, nodes int) float64 {
	if nodes <= 1 {
		return g.Remaining(devices)
	}
	return g.computeOn(g.config(devices, nodes))
}

// RemainingWith is Remaining with another number of parameter servers than ServersFor.
func (g *Gang) RemainingWith(devices, servers, nodes int) float64 {
	if g.Servers == nil {
		return g.RemainingOn(devices, nodes)
	}
	on := g.config(devices, max(nodes, 1))
	on.Servers = servers
	return g.computeServed(on)
}

// within bounds a prediction by the rest of the time limit, after which the job is ended.
func (g *Gang) within(seconds float64) float64 {
	const least = 1
	if g.Spec.TimeLimit > 0 {
		return math.Min(seconds, math.Max(g.Spec.TimeLimit.Seconds()-g.RunSeconds, least))
	}
	return seconds
}

// computeServed is the prediction for a gang with parameter servers.
func (g *Gang) computeServed(on train.Config) float64 {
	if g.predicted.source == FromModel {
		each, _ := g.Model.EpochSecondsOn(on, g.Spec.StepsIn)
		return g.within(bounded(g.predicted.epochsLeft * each))
	}
	// The prior only says how the step changes with the gang; the time itself is guessed.
	batch := max(g.Spec.BatchSize, 1)
	shape := curve.PriorServers(batch, g.Servers.Async)
	epoch := func(on train.Config) float64 {
		on.LocalBatch = batch
		return shape.StepSeconds(on, g.Servers.Async) * g.Spec.StepsIn(on)
	}
	least := g.config(g.Least, 1)
	least.Servers = 1
	return g.guessed(epoch(on) / epoch(least))
}

// guessed is the guessed time on devices whose epochs take so much longer than on the least devices. If nobody has said
// how long an epoch is, other devices are taken to change nothing.
func (g *Gang) guessed(longer float64) float64 {
	if math.IsNaN(longer) {
		longer = 1
	}
	return g.within(bounded(g.predicted.guess * longer))
}

// Forecast predicts when a gang that goes on with a placement now ends, in seconds, with the interval that holds eight
// of ten cases; false if nothing is known. What the policy expects is its middle. Predictions of a model begin with the
// present epoch, so the time in it is taken off.
func (s *Snapshot) Forecast(g *Gang, p Placement) (train.Span, bool) {
	const (
		// userLow and userHigh bound what becomes of a user's estimate.
		userLow, userHigh = 0.1, 1.5
		// late is what is left, of the time that has gone by, for a job that should have ended.
		lateExpected, lateHigh = 0.05, 0.5
	)
	expected := s.Expected(g, p)
	var span train.Span
	switch g.Source() {
	case FromNothing:
		if g.Spec.TimeLimit == 0 {
			return span, false
		}
		span = train.Span{Expected: expected, High: g.within(math.Inf(1))}
	case FromUser:
		span = train.Span{Expected: expected, Low: userLow * expected, High: userHigh * expected}
	case FromModel:
		span = train.Span{Expected: expected, Low: expected, High: expected}
		on := g.config(p.Size(), max(len(p.Parts), 1))
		if left, known := g.remainingSpan(on); known && left.Expected > 0 {
			span.Low, span.High = expected*left.Low/left.Expected, expected*left.High/left.Expected
		}
	}
	if gone := g.inEpoch(expected); gone > 0 {
		span.Expected = math.Max(span.Expected-gone, lateExpected*gone)
		span.Low, span.High = math.Max(span.Low-gone, 0), math.Max(span.High-gone, lateHigh*gone)
	}
	span.Expected, span.Low, span.High = g.within(span.Expected), g.within(span.Low), g.within(span.High)
	span.High += s.Tuning.RestartSeconds // its last save and exit
	span.Expected, span.Low = bounded(span.Expected), bounded(math.Min(span.Low, span.Expected))
	span.High = math.Max(bounded(span.High), span.Expected)
	return span, true
}

// remainingSpan is the model's own prediction.
func (g *Gang) remainingSpan(on train.Config) (train.Span, bool) {
	if g.Model == nil {
		return train.Span{}, false
	}
	return g.Model.RemainingSeconds(on, g.Done(), g.Spec.StopRule(), g.Spec.StepsIn)
}

// inEpoch is for how long a gang has been in its present epoch, by its attempt and the time of its epochs. Code that
// has not called the job API has gone on since its start. Users' estimates, adaptive batches and code that reports its
// steps need no such guess, and a time limit counts from now.
func (g *Gang) inEpoch(expected float64) float64 {
	r, left := g.Running, math.Max(g.Spec.Epochs()-g.Done(), 1)
	guessed := g.Job.Done == 0 && g.Source() == FromModel && g.Spec.AdaptiveBatch == nil
	if r == nil || !guessed || expected >= g.within(math.Inf(1)) {
		return 0
	}
	gone := math.Max(r.Seconds-g.Model.StartSeconds, 0)
	if !r.Spoke && r.Epochs == 0 {
		return gone
	}
	epoch := expected / left
	return math.Min(math.Max(gone-float64(r.Epochs)*epoch, 0), epoch)
}

// config is the configuration of a gang on the given number of devices, with the submitted batch.
func (g *Gang) config(devices, nodes int) train.Config {
	on := g.Spec.On(devices, nodes)
	on.Servers = g.ServersFor(devices)
	return on
}

func (g *Gang) computeOn(on train.Config) float64 {
	if g.Servers != nil {
		return g.computeServed(on)
	}
	steps := g.Spec.StepsIn
	if g.predicted.source == FromModel && g.Model != nil {
		left, _ := g.Model.RemainingSeconds(on, g.Done(), g.Spec.StopRule(), steps)
		return g.within(bounded(left.Expected))
	}
	// The prior only says how the step grows with the devices; the time itself is guessed.
	shape := curve.PriorAllReduce(max(g.Spec.BatchSize, 1))
	epoch := func(cfg train.Config) float64 {
		cfg.LocalBatch = max(cfg.LocalBatch, 1)
		return shape.StepSeconds(cfg) * steps(cfg)
	}
	return g.guessed(epoch(on) / epoch(g.config(g.Least, 1)))
}

// bounded keeps what no model should say out of the arithmetic and the plan: a plan with an infinite number could not
// be published.
func bounded(seconds float64) float64 {
	const longest = 1e10 // three centuries
	if math.IsNaN(seconds) {
		return longest
	}
	return math.Min(math.Max(seconds, 0), longest)
}

// Changeable is the share of a gang's remaining time that a restart could still shorten: it leaves at the end of the
// epoch that it is in, or of its step if its code can stop at any.
func (g *Gang) Changeable() float64 {
	all := g.Spec.Epochs()
	if all <= 0 || g.AnyStep() {
		return 1
	}
	later := all - float64(g.EpochsDone) - 1
	if later <= 0 {
		return 0
	}
	return later / (all - g.Done())
}

// Saves is what a restart on another number of devices would save, in seconds.
func (g *Gang) Saves(from, to int) float64 {
	return g.Changeable() * (g.Remaining(from) - g.Remaining(to))
}

// Expect replaces the predictions of a gang by those of its policy, by number of devices from Least on. Sizes between
// count as the smaller one.
func (g *Gang) Expect(seconds map[int]float64, first float64) {
	g.predicted.source = FromModel
	last := first
	for i := range g.predicted.seconds {
		if left, known := seconds[g.Least+i]; known {
			last = left
		}
		g.predicted.seconds[i] = g.within(last)
	}
}

// ExpectOn sets the prediction for one number of devices.
func (g *Gang) ExpectOn(devices int, seconds float64) {
	if i := devices - g.Least; i >= 0 && i < len(g.predicted.seconds) {
		g.predicted.source, g.predicted.seconds[i] = FromModel, g.within(seconds)
	}
}
