package policy

import (
	"cmp"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
)

// weigh orders the jobs by their remaining work and sets the value of each option.
func (m *allocation) weigh() {
	order := slices.Clone(m.jobs)
	slices.Reverse(order) // of jobs that have as much left the first one weighs more
	slices.SortStableFunc(order, func(x, y *candidate) int { return cmp.Compare(m.ahead(y), m.ahead(x)) })
	longest := 1.0
	for _, b := range order {
		longest = math.Max(longest, b.soonest)
	}
	for behind, b := range order {
		weight := (1 + criticalShare*b.soonest/longest) * m.weight(b, (makespanJobs+stillToCome*float64(behind))/math.Max(b.useful, 1))
		weight *= math.Exp2(-b.gang.Overuse)
		for i := range b.options {
			o := &b.options[i]
			o.value = weight * o.up * m.spared(b, o)
		}
		m.weighDeadline(b)
		m.weighEnergy(b)
		m.weighChange(b)
	}
}

// spared is the part of the time for which an option will last that no restart takes. A job that was preempted pays a
// part of one, whatever it gets: where it came back for a minute, it would only restart. How little it has left must
// not keep it from its end.
func (m *allocation) spared(b *candidate, o *option) float64 {
	if o.held || len(b.gang.Held.Parts) == 0 && b.gang.DeviceSeconds == 0 {
		return 1
	}
	restart := m.RestartSeconds(b.gang)
	lasts := m.lasts(restart)
	if len(b.gang.Held.Parts) == 0 {
		return 1 - comingBack*restart/lasts
	}
	return 1 - restart/math.Min(lasts, o.left+restart)
}

// lasts returns how long a change that costs a restart of the given seconds is assumed to last: until the next job
// comes, expected after as long as no job has come by now.
func (m *allocation) lasts(restart float64) float64 {
	return max(horizonSeconds, 2*restart, min(m.quiet, mostRestarts*restart))
}

// ahead returns the time that a job has left, for the order of the weights. A waiting job that would start because
// another one leaves has to be shorter by more than the cost of that and the error of predictions: else equal jobs
// would take devices from each other in turns.
func (m *allocation) ahead(b *candidate) float64 {
	t := &m.Tuning
	if !t.AtEpochs || len(b.gang.Held.Parts) > 0 {
		return b.single
	}
	return (1+t.Hysteresis)*b.single + m.RestartSeconds(b.gang)
}

// weight is the least cost of a second's work on one device, where each device held delays the others so much.
func (m *allocation) weight(b *candidate, delay float64) float64 {
	age := m.Age(b.gang)
	expected := (b.gang.DeviceSeconds + patienceSeconds*float64(m.Total)) / (age + patienceSeconds)
	least, smallest := math.Inf(1), true
	for _, o := range b.options {
		if n := float64(o.devices); smallest || n <= expected {
			least, smallest = math.Min(least, (1+delay*o.occupied)/o.up), false
		}
	}
	return least
}

// deadlineFactor is the largest factor by which a deadline raises a job's weight.
const deadlineFactor = 8

// weighDeadline lets an option by which a job ends in time weigh more, the more of the time until then the job needs:
// up to deadlineFactor times when its smallest option needs all of it. A job that cannot make it any more weighs what
// it would without a deadline.
func (m *allocation) weighDeadline(b *candidate) {
	d := b.gang.Spec.Deadline
	if d == nil {
		return
	}
	until, slowest := d.Sub(m.State.Now).Seconds(), 0.0
	for i := range b.options {
		slowest = math.Max(slowest, b.options[i].left)
	}
	for i := range b.options {
		if o := &b.options[i]; o.left <= until {
			o.value *= 1 + (deadlineFactor-1)*math.Min(slowest/until, 1)
		}
	}
}

// weighEnergy trades time for energy as Zeus does (You et al., NSDI'23): what a step of progress costs is eta times the
// power that is drawn for it plus 1-eta times the most that the job could draw. With eta 0 only time counts, with 1
// only energy.
func (m *allocation) weighEnergy(b *candidate) {
	eta := b.gang.Spec.Eta(m.Tuning.EnergyWeight)
	if !(eta > 0) {
		return
	}
	eta = math.Min(eta, 1)
	most := 0.0
	for i := range b.options {
		most = math.Max(most, b.options[i].watts)
	}
	for i := range b.options {
		if o := &b.options[i]; o.watts > 0 {
			o.value *= most / (eta*o.watts + (1-eta)*most)
		}
	}
}

// weighChange takes off what a change of a live job does not gain: until its epoch ends it goes on as it is, and
// predictions are not exact, so a change must be worth clearly more than what the job has.
func (m *allocation) weighChange(b *candidate) {
	held := b.held()
	if !m.Tuning.AtEpochs || held == nil || held.value == 0 {
		return
	}
	for i := range b.options {
		o := &b.options[i]
		if o == held {
			continue
		}
		if o.value > held.value {
			o.value = held.value + b.gang.Changeable()*(o.value-held.value)
		}
		o.value *= 1 - m.Tuning.Hysteresis
	}
}

// keepsBatch reports whether a job keeps its batch, of a step or of each device, whatever it runs on. Its speed then is
// what the model of its own steps says.
func keepsBatch(g *cluster.Gang) bool { return g.Spec.AdaptiveBatch == nil }

// foretell replaces the predictions of a job by those of the options, for the words and the predicted starts.
func (b *candidate) foretell() {
	if keepsBatch(b.gang) || len(b.options) == 0 {
		return
	}
	best := map[int]float64{}
	for i := range b.options {
		o := &b.options[i]
		if had, known := best[o.devices]; !known || o.left < had || b.chosen == o {
			best[o.devices] = o.left
		}
	}
	b.gang.Expect(best, b.options[0].left)
}

// work is what the user declared, in steps at the base batch, and how much of it is left: the training ends after its
// last epoch, however much its steps gained. A job that has done all is assumed to be nearly done.
func work(g *cluster.Gang) (total, left float64) {
	total = math.Max(float64(g.Spec.TrainingSetSize)*float64(g.Spec.MaxEpochs)/float64(max(g.Spec.BaseBatch(), 1)), 1)
	done := math.Max(g.Progress(), total*float64(g.EpochsDone)/math.Max(float64(g.Spec.MaxEpochs), 1))
	return total, math.Max(total-done, total/1000)
}
