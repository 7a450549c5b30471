package policy

import (
	"encoding/json"
	"maps"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// knowledge is what the jobs of each signature taught: the throughput estimator's memory, which goes into the plan.
type knowledge struct {
	Profiles map[string]*profile `json:"chapters"`
	curves   map[curveKey]*speedCurve
	// oracle, if there, replaces what was learned by the truth.
	oracle func(*state.Job) *Truth
}

// profile is about one signature.
type profile struct {
	Family string                 `json:"family,omitempty"`
	Models map[string]*throughput `json:"models"`
	// Noise is the gradient noise scale in each part of the training, as last measured there.
	Noise noiseTable `json:"noise_scales,omitempty"`
}

// throughput holds the measurements on one model of device.
type throughput struct {
	Samples []train.Ran     `json:"samples"`
	Fit     train.AllReduce `json:"fit"`
	stale   bool
}

type curveKey struct {
	signature, model string
	limits           state.Limits
}

// The bounds of the memory.
const (
	mostProfiles = 256
	mostSamples  = 64
	// sameBatch is the ratio of batches below which a further sample teaches nothing.
	sameBatch = 1.2
	// sameTime is the ratio of times of a step below which a later measurement does not replace an earlier one.
	sameTime = 1.1
)

// recall reads the memory of the last decision and adds what the jobs have measured since.
func recall(r *Round) *knowledge {
	b := &knowledge{}
	if len(r.Memory) == 0 || json.Unmarshal([]byte(r.Memory), b) != nil || b.Profiles == nil {
		b = &knowledge{Profiles: map[string]*profile{}}
	}
	b.curves = map[curveKey]*speedCurve{}
	b.mend()
	b.forget(r)
	for _, g := range r.Snapshot.Gangs {
		b.learn(g)
	}
	on := map[string]curve.DevicePrior{}
	for i := range r.Nodes {
		if n := &r.Nodes[i]; len(n.Devices) > 0 {
			on[n.Model] = curve.PriorOn(n.Devices[0])
		}
	}
	for _, c := range b.Profiles {
		for model, l := range c.Models {
			l.fit(on[model])
		}
	}
	return b
}

// annotate chooses the batch of a gang that goes on as it is.
func (b *knowledge) annotate(r *Round, g *cluster.Gang) {
	if keepsBatch(g) || g.Got.Empty() {
		return
	}
	size, nodes := g.Got.Size(), len(g.Got.Parts)
	curve := b.curve(g, r.Nodes[g.Got.Parts[0].Node].Model)
	goodput, batch := curve.best(g, size, nodes)
	setBatch(g, batch)
	g.Notes.Batch = curve.notes(g, size, nodes)
	if goodput > 0 {
		g.ExpectOn(size, curve.timeLeft(g, size, nodes, goodput))
	}
}

func (b *knowledge) close() string {
	memory, err := json.Marshal(b)
	if err != nil {
		return ""
	}
	return string(memory)
}

// mend drops what is no profile: the memory comes from outside.
func (b *knowledge) mend() {
	maps.DeleteFunc(b.Profiles, func(_ string, c *profile) bool { return c == nil || c.Models == nil })
	for _, c := range b.Profiles {
		maps.DeleteFunc(c.Models, func(_ string, l *throughput) bool { return l == nil })
		c.Noise = c.Noise.mended()
	}
}

// forget drops the signatures without a job once there are too many.
func (b *knowledge) forget(r *Round) {
	if len(b.Profiles) < mostProfiles {
		return
	}
	present := map[string]bool{}
	for _, g := range r.Snapshot.Gangs {
		present[g.Signature] = true
	}
	maps.DeleteFunc(b.Profiles, func(signature string, _ *profile) bool { return !present[signature] })
}

// learn takes in what one job has measured.
func (b *knowledge) learn(g *cluster.Gang) {
	if keepsBatch(g) || len(g.Ran()) == 0 {
		return
	}
	c := b.Profiles[g.Signature]
	if c == nil {
		if len(b.Profiles) >= mostProfiles {
			return
		}
		c = &profile{Family: g.Family, Models: map[string]*throughput{}}
		b.Profiles[g.Signature] = c
	}
	for _, s := range g.Ran() {
		if c.Models[s.Device] == nil {
			c.Models[s.Device] = &throughput{}
		}
		c.Models[s.Device].add(s)
	}
	c.Noise.learn(g)
}

func (l *throughput) add(s train.Ran) {
	if s.StepSeconds <= 0 || s.LocalBatch <= 0 {
		return
	}
	for i := range l.Samples {
		// The first measurement may have been a warm-up, or of a busy machine.
		if o := &l.Samples[i]; o.Config == s.Config && math.Max(o.StepSeconds/s.StepSeconds, s.StepSeconds/o.StepSeconds) > sameTime {
			*o, l.stale = s, true
		}
	}
	near := func(o train.Ran) bool {
		ratio := float64(o.LocalBatch) / float64(s.LocalBatch)
		return o.Workers == s.Workers && o.Nodes == s.Nodes && math.Max(ratio, 1/ratio) < sameBatch
	}
	if len(l.Samples) < mostSamples && !slices.ContainsFunc(l.Samples, near) {
		l.Samples, l.stale = append(l.Samples, s), true
	}
}

// fit is done again only when something new was seen.
func (l *throughput) fit(on curve.DevicePrior) {
	if !l.stale {
		return
	}
	l.stale = false
	samples := make([]curve.StepSample, len(l.Samples))
	for i, s := range l.Samples {
		samples[i] = curve.StepSample{Config: s.Config, StepSeconds: s.StepSeconds, Weight: 1}
	}
	if speed, err := curve.FitStepTime(samples, on); err == nil {
		l.Fit = speed.AllReduce
	}
}

// curve predicts how fast a job is on a model of device: from what its signature measured, or its family as long as
// that knows more, or from the prior. On a model that none of its kind has run on, the best known model stands in, as
// much slower or faster as other signatures found the two to be.
func (b *knowledge) curve(g *cluster.Gang, model string) *speedCurve {
	key := curveKey{g.Signature, model, state.LimitsOn(model, g.Spec)}
	if c := b.curves[key]; c != nil {
		return c
	}
	c := newSpeedCurve(g, model)
	if b.oracle != nil {
		c.truth = b.oracle(g.Job)
	}
	b.inform(c, g, model)
	if c.fit == (train.AllReduce{}) {
		c.fit = curve.PriorAllReduce(c.limits.BaseBatch)
	}
	b.curves[key] = c
	return c
}

// inform has a curve take in what is known about a gang on a model of device.
func (b *knowledge) inform(c *speedCurve, g *cluster.Gang, model string) {
	known, kin := b.Profiles[g.Signature], b.kin(g, model)
	switch {
	case known != nil:
		c.noise = known.Noise
	case kin != nil:
		c.noise = kin.Noise
		known = &profile{}
	default:
		return
	}
	own := known.Models[model]
	if other := known.bestKnown(); kin != nil && own.count() < enough {
		c.resemble(kin.Models[model], own)
	} else if own != nil {
		c.correct(own)
		c.tried = own.largest()
	} else if other != "" {
		c.correct(known.Models[other])
		c.slower = b.ratio(model, other)
	}
}

// enough is the number of measurements from which on a signature no longer needs its family.
const enough = 4

// kin is the profile of another signature of a gang's family of which the most was seen on a model; nil if there is
// none, or no more than of its own.
func (b *knowledge) kin(g *cluster.Gang, model string) *profile {
	if g.Family == "" {
		return nil
	}
	var best *profile
	most := 0
	if own := b.Profiles[g.Signature]; own != nil {
		most = own.Models[model].count()
	}
	for _, name := range slices.Sorted(maps.Keys(b.Profiles)) {
		if p := b.Profiles[name]; name != g.Signature && p.Family == g.Family && p.Models[model].count() > most {
			best, most = p, p.Models[model].count()
		}
	}
	return best
}

func (l *throughput) count() int {
	if l == nil {
		return 0
	}
	return len(l.Samples)
}

// largest is the largest batch on a device that has run.
func (l *throughput) largest() int {
	most := 0
	if l == nil {
		return most
	}
	for _, s := range l.Samples {
		most = max(most, s.LocalBatch)
	}
	return most
}

// bestKnown is the model of which the most was seen.
func (c *profile) bestKnown() string {
	best := ""
	for _, model := range slices.Sorted(maps.Keys(c.Models)) {
		if best == "" || len(c.Models[model].Samples) > len(c.Models[best].Samples) {
			best = model
		}
	}
	return best
}

// best returns the most samples per second that a device took, without the exchange of gradients; zero if none did.
func (l *throughput) best() float64 {
	most := 0.0
	if l != nil {
		for _, s := range l.Samples {
			if pass := s.StepSeconds - s.SyncSeconds; pass > 0 {
				most = math.Max(most, float64(s.LocalBatch)/pass)
			}
		}
	}
	return most
}

// ratio is that of step times on two models of device: the mean over the signatures that have run on both, and with
// half a vote that there is no difference.
func (b *knowledge) ratio(model, other string) float64 {
	sum, count := 0.0, 0.5
	for _, name := range slices.Sorted(maps.Keys(b.Profiles)) {
		here, there := b.Profiles[name].Models[model].best(), b.Profiles[name].Models[other].best()
		if here > 0 && there > 0 {
			sum, count = sum+math.Log(there/here), count+1
		}
	}
	return math.Exp(sum / count)
}
