package plan

import "math"

// deadlineFactor is how much more a job weighs at most because of its deadline.
const deadlineFactor = 8

// terms sets what the options of a job are worth beside the time that they save: deadlines, energy, and that a live job can only leave at an epoch's end.
func (m *market) terms(b *bidder) {
	m.weighDeadline(b)
	m.weighEnergy(b)
	m.weighChange(b)
}

// weighDeadline lets an option by which a job ends in time weigh more, the more of the time until then the job needs: up to deadlineFactor times when its
// smallest option needs all of it. A job that cannot make it any more weighs what it would without a deadline.
func (m *market) weighDeadline(b *bidder) {
	d := b.gang.Spec.Deadline
	if d == nil {
		return
	}
	until, slowest := d.Sub(m.fleet.state.Now).Seconds(), 0.0
	for i := range b.options {
		slowest = math.Max(slowest, b.options[i].left)
	}
	for i := range b.options {
		if o := &b.options[i]; o.left <= until {
			o.value *= 1 + (deadlineFactor-1)*math.Min(slowest/until, 1)
		}
	}
}

// weighEnergy trades time for energy as Zeus does (You et al., NSDI'23): what a step of progress costs is eta times the power that is drawn for it plus 1-eta
// times the most that the job could draw. With eta 0 only time counts, with 1 only energy.
func (m *market) weighEnergy(b *bidder) {
	eta := b.gang.Spec.Eta(m.fleet.state.Tuning.EnergyWeight)
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

// weighChange takes off what a change of a live job does not gain: until its epoch ends it goes on as it is, and predictions are not exact, so a change must
// be worth clearly more than what the job has.
func (m *market) weighChange(b *bidder) {
	if !m.fleet.state.Tuning.AtEpochs || len(b.gang.held) == 0 {
		return
	}
	had := 0.0
	for i := range b.options {
		if b.options[i].held {
			had = b.options[i].value
		}
	}
	for i := range b.options {
		o := &b.options[i]
		if o.held || had == 0 {
			continue
		}
		if o.value > had {
			o.value = had + b.gang.changeable()*(o.value-had)
		}
		o.value *= 1 - m.fleet.state.Tuning.Hysteresis
	}
}

// fixedBatch says whether a job keeps its batch per device whatever it runs on. Its speed then is what the models of its own steps say.
func (g *gang) fixedBatch() bool { return g.Limits == nil && g.Request == nil }

// remainingOn is the predicted time to the end on devices of so many nodes.
func (c *candidate) remainingOn(devices, nodes int) float64 {
	if nodes <= 1 {
		return c.remaining(devices)
	}
	return c.computeOn(c.configOn(devices, nodes))
}

// foretell tells the board what the market expects of a job, for the words and the predicted starts. Sizes between options count as the smaller one.
func (b *bidder) foretell() {
	p := &b.gang.predicted
	if b.gang.fixedBatch() || len(b.options) == 0 {
		return
	}
	p.source = fromModel
	best := map[int]float64{}
	for i := range b.options {
		o := &b.options[i]
		if had, known := best[o.devices]; !known || o.left < had || b.chosen == i {
			best[o.devices] = o.left
		}
	}
	last := b.options[0].left
	for i := range p.seconds {
		if left, known := best[b.gang.min+i]; known {
			last = left
		}
		p.seconds[i] = last
	}
}

// know sets the time for one number of devices.
func (p *predicted) know(least, devices int, seconds float64) {
	if i := devices - least; i >= 0 && i < len(p.seconds) {
		p.source, p.seconds[i] = fromModel, seconds
	}
}
