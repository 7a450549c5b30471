package plan

import (
	"encoding/json"
	"maps"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// book is what the jobs of each signature taught. It is the policy's memory.
type book struct {
	Chapters map[string]*chapter `json:"chapters"`
	// News is the fingerprint of the last state with its plan applied.
	News   uint64 `json:"news"`
	curves map[curveKey]*speedCurve
	// oracle replaces what was learned by the truth.
	oracle bool
}

// chapter is about one signature.
type chapter struct {
	Models map[string]*lesson `json:"models"`
	// Noise is the gradient noise in each part of the training, as last measured there.
	Noise []train.Efficiency `json:"noise,omitempty"`
}

// lesson is what was measured on one model of device.
type lesson struct {
	Samples []Seen          `json:"samples"`
	Fit     train.AllReduce `json:"fit"`
	stale   bool
}

type curveKey struct{ signature, model string }

// The bounds of the memory.
const (
	mostChapters = 256
	mostSamples  = 64
	// sameBatch is the ratio of batches below which a further sample teaches nothing.
	sameBatch = 1.2
	// noiseParts is into how many parts a training is divided.
	noiseParts = 32
)

// openBook recalls the last book and adds what the jobs have measured since.
func openBook(f *fleet) *book {
	b := &book{}
	if len(f.state.Memory) == 0 || json.Unmarshal([]byte(f.state.Memory), b) != nil || b.Chapters == nil {
		b = &book{Chapters: map[string]*chapter{}}
	}
	b.curves = map[curveKey]*speedCurve{}
	b.mend()
	b.forget(f)
	for _, g := range f.gangs {
		b.learn(g)
	}
	for _, c := range b.Chapters {
		for _, l := range c.Models {
			l.fit()
		}
	}
	return b
}

func (b *book) close() string {
	memory, err := json.Marshal(b)
	if err != nil {
		return ""
	}
	return string(memory)
}

// mend drops what is no chapter or lesson: the memory comes from outside.
func (b *book) mend() {
	maps.DeleteFunc(b.Chapters, func(_ string, c *chapter) bool { return c == nil || c.Models == nil })
	for _, c := range b.Chapters {
		maps.DeleteFunc(c.Models, func(_ string, l *lesson) bool { return l == nil })
	}
}

// forget drops signatures of which there is no job once there are too many.
func (b *book) forget(f *fleet) {
	if len(b.Chapters) < mostChapters {
		return
	}
	present := map[string]bool{}
	for _, g := range f.gangs {
		present[g.Signature] = true
	}
	maps.DeleteFunc(b.Chapters, func(signature string, _ *chapter) bool { return !present[signature] })
}

// learn takes in what one job has measured.
func (b *book) learn(g *gang) {
	if g.Signature == "" || len(g.Seen) == 0 {
		return
	}
	c := b.Chapters[g.Signature]
	if c == nil {
		if len(b.Chapters) >= mostChapters {
			return
		}
		c = &chapter{Models: map[string]*lesson{}}
		b.Chapters[g.Signature] = c
	}
	for _, s := range g.Seen {
		if c.Models[s.Model] == nil {
			c.Models[s.Model] = &lesson{}
		}
		c.Models[s.Model].add(s)
	}
	if g.Noise != nil {
		if len(c.Noise) != noiseParts {
			c.Noise = make([]train.Efficiency, noiseParts)
		}
		c.Noise[g.part()] = *g.Noise
	}
}

// part is the part of its training that a job is in.
func (g *gang) part() int {
	return min(g.EpochsDone*noiseParts/max(g.Spec.MaxEpochs, 1), noiseParts-1)
}

func (l *lesson) add(s Seen) {
	if s.StepSeconds <= 0 || s.LocalBatch <= 0 || len(l.Samples) >= mostSamples {
		return
	}
	near := func(o Seen) bool {
		ratio := float64(o.LocalBatch) / float64(s.LocalBatch)
		return o.Workers == s.Workers && o.Nodes == s.Nodes && math.Max(ratio, 1/ratio) < sameBatch
	}
	if !slices.ContainsFunc(l.Samples, near) {
		s.Shape = nil
		l.Samples, l.stale = append(l.Samples, s), true
	}
}

// fit is done again only when something new was seen.
func (l *lesson) fit() {
	if !l.stale {
		return
	}
	l.stale = false
	samples := make([]curve.StepSample, len(l.Samples))
	for i, s := range l.Samples {
		samples[i] = curve.StepSample{Config: s.Config, StepSeconds: s.StepSeconds, Weight: 1}
	}
	if speed, err := curve.FitStepTime(samples); err == nil {
		l.Fit = speed.AllReduce
	}
}

// curve is how fast a job is on a model of device: by what its signature taught, else by its own fit, else by the prior. On a model that none of
// its kind has run on, the best known model stands in, as much slower or faster as other signatures found the two to be.
func (b *book) curve(g *gang, model string) *speedCurve {
	key := curveKey{g.Signature, model}
	if c := b.curves[key]; c != nil && g.Signature != "" {
		return c
	}
	c := newSpeedCurve(g, model)
	if o := g.Oracle; b.oracle && o != nil && o.StepTime != nil && o.Gain != nil {
		c.truth = g.Oracle
	}
	if known := b.Chapters[g.Signature]; known != nil && g.Signature != "" {
		c.noise = known.Noise
		if l := known.Models[model]; l != nil {
			c.correct(l)
			c.tried = l.largest()
		} else if other := known.bestKnown(); other != "" {
			c.correct(known.Models[other])
			c.slower = b.ratio(model, other)
		}
	}
	if c.fit == (train.AllReduce{}) {
		c.fit = curve.PriorAllReduce(c.limits.BaseBatch)
		if s, ok := g.Speeds[model]; ok && s.Known() {
			c.fit = s.AllReduce
		}
	}
	b.curves[key] = c
	return c
}

// largest is the largest batch on a device that has run.
func (l *lesson) largest() int {
	most := 0
	for _, s := range l.Samples {
		most = max(most, s.LocalBatch)
	}
	return most
}

// bestKnown is the model of which the most was seen.
func (c *chapter) bestKnown() string {
	best := ""
	for _, model := range slices.Sorted(maps.Keys(c.Models)) {
		if best == "" || len(c.Models[model].Samples) > len(c.Models[best].Samples) {
			best = model
		}
	}
	return best
}

// throughput is the most samples per second that a device was seen to take, without the exchange; zero if none was.
func (l *lesson) throughput() float64 {
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

// ratio is that of step times on two models of device: the mean over the signatures that have run on both, and with half a vote that there is no difference.
func (b *book) ratio(model, other string) float64 {
	sum, count := 0.0, 0.5
	for _, name := range slices.Sorted(maps.Keys(b.Chapters)) {
		here, there := b.Chapters[name].Models[model].throughput(), b.Chapters[name].Models[other].throughput()
		if here > 0 && there > 0 {
			sum, count = sum+math.Log(there/here), count+1
		}
	}
	return math.Exp(sum / count)
}
