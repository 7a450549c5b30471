package plan

import (
	"encoding/json"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// book is what the trainings of each signature taught.
type book struct {
	Chapters map[string]*chapter `json:"chapters"`
	curves   map[curveKey]*speedCurve
}

// chapter is about the jobs of one signature.
type chapter struct {
	Seen map[string]*lesson `json:"seen"`
	// Noise is by part of the training.
	Noise []train.Efficiency `json:"noise,omitempty"`
}

// lesson is what was measured on one model of device, and the fit of it.
type lesson struct {
	Samples []Seen          `json:"samples"`
	Fit     train.AllReduce `json:"fit"`
	stale   bool
}

type curveKey struct {
	signature, model string
	limits           Limits
	perNode          int
}

const (
	mostSamples = 64
	noiseParts  = 32
)

func openBook(f *fleet) *book {
	b := &book{}
	if len(f.state.Memory) == 0 || json.Unmarshal(f.state.Memory, b) != nil || b.Chapters == nil {
		b = &book{Chapters: map[string]*chapter{}}
	}
	b.curves = map[curveKey]*speedCurve{}
	for _, g := range f.gangs {
		b.learn(g)
	}
	return b
}

func (b *book) close() []byte {
	out, err := json.Marshal(b)
	if err != nil {
		return nil
	}
	return out
}

func (b *book) learn(g *gang) {
	if g.Signature == "" || len(g.Seen) == 0 {
		return
	}
	c := b.Chapters[g.Signature]
	if c == nil {
		c = &chapter{Seen: map[string]*lesson{}}
		b.Chapters[g.Signature] = c
	}
	for _, s := range g.Seen {
		l := c.Seen[s.Model]
		if l == nil {
			l = &lesson{}
			c.Seen[s.Model] = l
		}
		l.add(s)
	}
	if g.Noise != nil {
		if len(c.Noise) == 0 {
			c.Noise = make([]train.Efficiency, noiseParts)
		}
		c.Noise[g.part()] = *g.Noise
	}
}

// part is the part of its training in which a job is.
func (g *gang) part() int {
	return min(g.EpochsDone*noiseParts/max(g.Spec.MaxEpochs, 1), noiseParts-1)
}

func (l *lesson) add(s Seen) {
	near := func(o Seen) bool {
		return o.Workers == s.Workers && o.Nodes == s.Nodes && math.Abs(math.Log(float64(o.LocalBatch)/float64(s.LocalBatch))) < 0.2
	}
	if len(l.Samples) >= mostSamples || slices.ContainsFunc(l.Samples, near) {
		return
	}
	s.Shape = nil
	l.Samples = append(l.Samples, s)
	l.stale = true
}

// fit brings the fit up to date.
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

// curve is the speeds of a job on a pool.
func (b *book) curve(g *gang, p *pool) *speedCurve {
	key := curveKey{signature: g.Signature, model: p.model, perNode: p.perNode}
	if g.Limits != nil {
		key.limits = *g.Limits
	}
	if g.Signature != "" {
		if c, ok := b.curves[key]; ok {
			return c
		}
	}
	c := &speedCurve{limits: key.limits, rows: map[[2]int][]pace{}, ahead: map[[2]int][]float64{}}
	if ch := b.Chapters[g.Signature]; ch != nil && g.Signature != "" {
		c.noise = ch.Noise
		l := ch.Seen[p.model]
		if l == nil {
			for _, m := range sortedModels(ch.Seen) {
				l = ch.Seen[m]
			}
		}
		if l != nil {
			l.fit()
			c.fit, c.samples = l.Fit, l.Samples
		}
	}
	if c.fit == (train.AllReduce{}) {
		if s, ok := g.Speeds[p.model]; ok && s.Known() {
			c.fit = s.AllReduce
		} else {
			c.fit = curve.PriorAllReduce(max(c.limits.BaseBatch, 1))
			c.unknown = true
		}
	}
	for _, s := range c.samples {
		c.residuals = append(c.residuals, math.Log(s.StepSeconds/c.fit.StepSeconds(s.Config)))
		c.passes = append(c.passes, math.Log(math.Max(s.StepSeconds-s.SyncSeconds, 1e-9)/math.Max(c.fit.ComputeSeconds(s.Config), 1e-9)))
	}
	if g.Signature != "" {
		b.curves[key] = c
	}
	return c
}

func sortedModels(m map[string]*lesson) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}
