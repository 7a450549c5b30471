package curve

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Kind is what jobs have in common that disturb others alike: a program, its batch per device, and how many devices it has.
type Kind struct {
	// Family names the program.
	Family string `json:"family"`
	// LocalBatch is in samples per device, 0 where nobody knows it.
	LocalBatch int `json:"local_batch,omitempty"`
	// Devices is how many it has where it has several.
	Devices int `json:"devices,omitempty"`
}

// On is the kind of the same program on so many devices.
func (k Kind) On(devices int) Kind {
	k.Devices = 0
	if devices > 1 {
		k.Devices = devices
	}
	return k
}

// KindOf is the kind of a job on one device. Another image or command is another family, so that what was learnt of an old one does not stand for it. The family is a
// digest: commands are long, and every plan is recorded with what was known.
func KindOf(s train.Spec) Kind {
	batch := s.BatchSize
	s.BatchSize = 0
	program := s.Signature()
	if program == "" {
		program = s.Name
	}
	digest := sha256.Sum256([]byte(program))
	return Kind{Family: fmt.Sprintf("%x", digest[:6]), LocalBatch: batch}
}

// company is the kind that several neighbours are together, so that what was measured beside all of them is remembered like a pair.
func company(others []Kind) Kind {
	if len(others) == 1 {
		return others[0]
	}
	words := make([]string, len(others))
	for i, k := range slices.SortedFunc(slices.Values(others), func(x, y Kind) int {
		return cmp.Or(cmp.Compare(x.Family, y.Family), cmp.Compare(x.LocalBatch, y.LocalBatch), cmp.Compare(x.Devices, y.Devices))
	}) {
		words[i] = fmt.Sprintf("%s/%d", k.Family, k.LocalBatch)
		if k.Devices > 1 {
			words[i] += fmt.Sprintf("x%d", k.Devices)
		}
	}
	return Kind{Family: strings.Join(words, "+")}
}

// KindPair is a kind and one that shares its device.
type KindPair struct {
	Self   Kind `json:"self"`
	Beside Kind `json:"beside"`
}

// Encounter is what a type of device has shown of one kind beside another.
type Encounter struct {
	KindPair
	// Rate is the mean of the step time alone over the step time beside the other; 1 is undisturbed.
	Rate float64 `json:"rate"`
	// Count is how many measurements are in the mean, at most maxCount.
	Count int `json:"count"`
	// OutOfMemory says that the two did not fit on the device; Rate and Count then are 0.
	OutOfMemory bool `json:"out_of_memory,omitempty"`
	// Under is the environment in which the last of them was measured: the driver's version, say.
	Under string `json:"under,omitempty"`
}

const (
	// maxCount makes a mean follow what changes slowly: no measurement weighs less than one in so many.
	maxCount = 20
	// maxEncounters bounds what is remembered of a type of device, and with it the time of a prediction.
	maxEncounters = 1000
)

// Interference predicts, for one type of device, how fast jobs run beside each other and whether they fit. What was measured of a pair of kinds is completed
// for other pairs by a Gaussian process in which a rate is the sum of what the job itself, what the other and what only the two of them together do to it;
// kinds are alike that are of one family, and more so with batches of similar size. Of the models tried (docs/benchmarks.md) it errs least on pairs held out.
// The zero value knows nothing.
type Interference struct {
	under      string
	encounters []Encounter
	at         map[KindPair]int // in encounters
	rates      *Process[KindPair]
	row        map[KindPair]int // in rates
	fits       *Process[KindPair]
	// foretold is what was asked since the last measurement.
	foretold map[KindPair]foretold
}

// foretold is what is predicted of a pair: a plan asks for the same ones again and again.
type foretold struct{ rate, deviation, fits float64 }

// likeness is the covariance of what two pairs of kinds show: of what a kind itself, what its neighbour and what only the two together have to do with it.
// Nothing is common to all pairs: first tries that disappoint say nothing of other families, so that these are tried as well.
func likeness(x, y KindPair) float64 {
	const variance = 0.02 // of each of the three
	self, beside := x.Self.alike(y.Self), x.Beside.alike(y.Beside)
	return variance * (self + beside + self*beside)
}

// alike is 0 for kinds of two families. In one family half of it is whatever the batches are, and half falls by e with every fourfold batch or number of devices.
func (k Kind) alike(other Kind) float64 {
	if k.Family != other.Family {
		return 0
	}
	const doublings = 2
	apart := math.Abs(math.Log2(float64(max(k.LocalBatch, 1))) - math.Log2(float64(max(other.LocalBatch, 1))))
	if k.Devices != other.Devices {
		apart += math.Abs(math.Log2(float64(max(k.Devices, 1))) - math.Log2(float64(max(other.Devices, 1))))
	}
	return 0.5 + 0.5*math.Exp(-apart/doublings)
}

// NewInterference starts with what is known of a type of device. What was measured in another environment counts less, and is replaced by the first
// measurement in this one.
func NewInterference(under string, known []Encounter) *Interference {
	return &Interference{under: under, encounters: slices.Clone(known)}
}

// ready makes the processes where nobody has asked them yet: a record is often read and seldom asked.
func (m *Interference) ready() {
	if m.at == nil {
		m.learn()
	}
}

// learn makes the processes anew from all encounters.
func (m *Interference) learn() {
	const (
		expectedRate = 0.6  // two jobs together do a fifth more than one alone
		expectedFit  = 0.95 // most pairs fit
	)
	m.at, m.row, m.foretold = map[KindPair]int{}, map[KindPair]int{}, map[KindPair]foretold{}
	m.rates, m.fits = NewProcess(expectedRate, likeness), NewProcess(expectedFit, likeness)
	for i, e := range m.encounters {
		m.at[e.KindPair] = i
		m.add(e)
	}
}

// add tells the processes of an encounter.
func (m *Interference) add(e Encounter) {
	const rateError, fitError, staleError = 0.02, 0.05, 0.2 // what jobs of one kind differ by
	stale := 0.0
	if e.Under != m.under {
		stale = staleError
	}
	if e.OutOfMemory {
		m.fits.Add(e.KindPair, 0, math.Hypot(fitError, stale))
		return
	}
	m.fits.Add(e.KindPair, 1, math.Hypot(fitError, stale))
	m.row[e.KindPair] = len(m.rates.points)
	m.rates.Add(e.KindPair, e.Rate, math.Hypot(rateError, stale))
}

// Shared learns the rates of two jobs that were measured side by side: step time alone over step time beside the other. What is no rate is left out.
func (m *Interference) Shared(a, b Kind, rateA, rateB float64) {
	if !(rateA > 0 && rateB > 0) || math.IsInf(rateA+rateB, 0) {
		return
	}
	m.meet(Encounter{KindPair: KindPair{a, b}, Rate: rateA, Count: 1, Under: m.under})
	m.meet(Encounter{KindPair: KindPair{b, a}, Rate: rateB, Count: 1, Under: m.under})
}

// Measured learns the rate of a job beside others, all of them: step time alone over step time there. What is no rate is left out.
func (m *Interference) Measured(self Kind, others []Kind, rate float64) {
	if rate > 0 && !math.IsInf(rate, 0) && len(others) > 0 {
		m.meet(Encounter{KindPair: KindPair{self, company(others)}, Rate: rate, Count: 1, Under: m.under})
	}
}

// Measurements is how often the rate of a job beside others was measured in this environment.
func (m *Interference) Measurements(self Kind, others []Kind) int {
	m.ready()
	if i, met := m.at[KindPair{self, company(others)}]; met && m.encounters[i].Under == m.under {
		return m.encounters[i].Count
	}
	return 0
}

// OutOfMemory learns that two jobs do not fit on one device.
func (m *Interference) OutOfMemory(a, b Kind) {
	m.meet(Encounter{KindPair: KindPair{a, b}, OutOfMemory: true, Under: m.under})
	m.meet(Encounter{KindPair: KindPair{b, a}, OutOfMemory: true, Under: m.under})
}

func (m *Interference) meet(e Encounter) {
	m.ready()
	clear(m.foretold)
	i, met := m.at[e.KindPair]
	switch {
	case !met:
		if len(m.encounters) >= maxEncounters {
			m.forget()
		}
		m.at[e.KindPair] = len(m.encounters)
		m.encounters = append(m.encounters, e)
		m.add(e)
	case m.encounters[i].Under != e.Under || m.encounters[i].OutOfMemory != e.OutOfMemory:
		m.encounters = append(slices.Delete(m.encounters, i, i+1), e)
		m.learn()
	case e.OutOfMemory:
		m.toEnd(i)
	default:
		m.toEnd(i)
		known := &m.encounters[len(m.encounters)-1]
		known.Count = min(known.Count+1, maxCount)
		known.Rate += (e.Rate - known.Rate) / float64(known.Count)
		m.rates.Replace(m.row[e.KindPair], known.Rate)
	}
}

// toEnd has an encounter be the newest.
func (m *Interference) toEnd(i int) {
	e := m.encounters[i]
	m.encounters = append(slices.Delete(m.encounters, i, i+1), e)
	for k := i; k < len(m.encounters); k++ {
		m.at[m.encounters[k].KindPair] = k
	}
}

// forget drops a quarter of the encounters: those that were not met for longest. Who does not fit beside whom goes last, as it costs a job its work to learn it again.
func (m *Interference) forget() {
	much := len(m.encounters) - maxEncounters*3/4
	for _, outOfMemory := range []bool{false, true} {
		m.encounters = slices.DeleteFunc(m.encounters, func(e Encounter) bool {
			goes := much > 0 && e.OutOfMemory == outOfMemory
			if goes {
				much--
			}
			return goes
		})
	}
	m.learn()
}

// Encounters is all that is known, what was met last at the end: what NewInterference starts from.
func (m *Interference) Encounters() []Encounter { return slices.Clone(m.encounters) }

// Without is what would be known if a job had never been measured beside just these others.
func (m *Interference) Without(self Kind, others []Kind) *Interference {
	pair := KindPair{self, company(others)}
	return NewInterference(m.under, slices.DeleteFunc(m.Encounters(), func(e Encounter) bool { return e.KindPair == pair }))
}

// written is the form in which an interference is kept: the processes follow from it.
type written struct {
	Under      string      `json:"under,omitempty"`
	Encounters []Encounter `json:"encounters"`
}

// MarshalJSON writes the encounters. It may run beside predictions.
func (m *Interference) MarshalJSON() ([]byte, error) {
	return json.Marshal(written{m.under, m.encounters})
}

// UnmarshalJSON makes the processes anew, so that they predict what those did that were written.
func (m *Interference) UnmarshalJSON(data []byte) error {
	var w written
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*m = *NewInterference(w.Under, w.Encounters)
	return nil
}

// Rate predicts the rate of a job of one kind beside one of another, and the standard deviation of that.
func (m *Interference) Rate(self, beside Kind) (rate, deviation float64) {
	f := m.foretell(self, beside)
	return f.rate, f.deviation
}

// Fits predicts how likely two jobs fit on one device, 0 to 1. Memory grows with the batch: it is 0 where jobs of the same families did not fit with batches
// that were no larger, and 1 where they did with batches that were no smaller.
func (m *Interference) Fits(a, b Kind) float64 { return m.foretell(a, b).fits }

func (m *Interference) foretell(self, beside Kind) foretold {
	m.ready()
	pair := KindPair{self, beside}
	f, asked := m.foretold[pair]
	if !asked {
		f.rate, f.deviation = m.rates.Predict(pair)
		f.rate, f.fits = max(f.rate, 0), m.likelyFit(self, beside)
		m.foretold[pair] = f
	}
	return f
}

// RateAmong predicts the rate of a job beside any number of others, which is as measured where it was beside just these. Else each of them makes its steps
// longer by as much as if they two were alone, and the deviation reaches at least to the worst case, in which each takes as much of the rate as it would of a
// job that is undisturbed.
func (m *Interference) RateAmong(self Kind, others []Kind) (rate, deviation float64) {
	if len(others) == 0 {
		return 1, 0
	}
	if len(others) == 1 || m.Measurements(self, others) > 0 {
		return m.Rate(self, company(others))
	}
	const least = 0.01
	longer, worst, variance := 0.0, 1.0, 0.0
	for _, other := range others {
		r, d := m.Rate(self, other)
		r = max(r, least)
		longer, worst, variance = longer+1/r-1, worst-(1-r), variance+d*d/(r*r*r*r)
	}
	rate = 1 / max(1+longer, least)
	// Of 1/x an error is worth x^-2 times that of x.
	return rate, max(math.Sqrt(variance)*rate*rate, rate-max(worst, 0))
}

func (m *Interference) likelyFit(a, b Kind) float64 {
	likely, _ := m.fits.Predict(KindPair{a, b})
	for _, e := range m.encounters {
		switch {
		case e.Under != m.under:
		case e.OutOfMemory && e.Self.within(a) && e.Beside.within(b):
			return 0
		case !e.OutOfMemory && a.within(e.Self) && b.within(e.Beside):
			likely = 1
		}
	}
	return min(max(likely, 0), 1)
}

// within says that k needs no more memory than other, as far as is known.
func (k Kind) within(other Kind) bool {
	return k.Family == other.Family && k.LocalBatch <= other.LocalBatch
}
