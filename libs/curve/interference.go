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

// Kind is a class of jobs that disturb others alike: a program, its batch per device, and its number of devices and
// nodes.
type Kind struct {
	// Family names the program.
	Family string `json:"family"`
	// LocalBatch is in samples per device, 0 if unknown.
	LocalBatch int `json:"local_batch,omitempty"`
	// Devices is the number of devices of the job if it has several, else 0.
	Devices int `json:"devices,omitempty"`
	// Nodes is the number of nodes that its devices are on if there are several, else 0: steps alone take longer over a
	// network, and leave more of a device to others.
	Nodes int `json:"nodes,omitempty"`
}

// On returns the kind of the same program on a number of devices of a number of nodes.
func (k Kind) On(devices, nodes int) Kind {
	k.Devices, k.Nodes = 0, 0
	if devices > 1 {
		k.Devices = devices
	}
	if nodes > 1 {
		k.Nodes = nodes
	}
	return k
}

// CompareKinds orders kinds.
func CompareKinds(x, y Kind) int {
	return cmp.Or(cmp.Compare(x.Family, y.Family), cmp.Compare(x.LocalBatch, y.LocalBatch), cmp.Compare(x.Devices, y.Devices), cmp.Compare(x.Nodes, y.Nodes))
}

// KindOf returns the kind of a job on one device. Another image or command is another family, so that measurements of
// an old version do not stand for the new one. The family is a digest: commands are long, and every recorded plan
// carries these measurements.
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

// combinedKind is a kind that stands for several co-runners together, so that measurements beside all of them are
// stored like those of a pair.
func combinedKind(others []Kind) Kind {
	if len(others) == 1 {
		return others[0]
	}
	words := make([]string, len(others))
	for i, k := range slices.SortedFunc(slices.Values(others), CompareKinds) {
		words[i] = fmt.Sprintf("%s/%d", k.Family, k.LocalBatch)
		if k.Devices > 1 {
			words[i] += fmt.Sprintf("x%d", k.Devices)
		}
		if k.Nodes > 1 {
			words[i] += fmt.Sprintf("@%d", k.Nodes)
		}
	}
	return Kind{Family: strings.Join(words, "+")}
}

// KindPair is a kind and a co-runner on its device.
type KindPair struct {
	Self   Kind `json:"self"`
	Beside Kind `json:"beside"`
}

// InterferenceSample is what was measured, on one type of device, of one kind beside another.
type InterferenceSample struct {
	KindPair
	// Rate is the mean of the step time alone over the step time beside the other; 1 means undisturbed.
	Rate float64 `json:"rate"`
	// Count is the number of measurements in the mean, at most maxCount.
	Count int `json:"count"`
	// OutOfMemory reports that the two did not fit on the device; Rate and Count are then 0.
	OutOfMemory bool `json:"out_of_memory,omitempty"`
	// Under is the environment of the last measurement, for example the driver's version.
	Under string `json:"under,omitempty"`
}

const (
	// maxCount lets a mean follow slow changes: each new measurement weighs at least 1/maxCount.
	maxCount = 20
	// maxSamples bounds the samples of a type of device, and with them the time of a prediction.
	maxSamples = 1000
)

// Interference predicts, for one type of device, how fast jobs run beside each other and whether they fit. A Gaussian
// process extends the measured pairs of kinds to other pairs: a rate is the sum of the effects of the job itself, of
// the other, and of the two together. Kinds of one family are similar, the more so the closer their batch sizes. Among
// the models tried (docs/benchmarks.md) this one errs least on pairs held out. The zero value knows nothing.
type Interference struct {
	under   string
	samples []InterferenceSample
	at      map[KindPair]int // index into samples
	rates   *Process[KindPair]
	row     map[KindPair]int // index into rates
	fits    *Process[KindPair]
	// predictions caches what was asked since the last measurement.
	predictions map[KindPair]prediction
}

// prediction is the prediction for a pair; a plan asks for the same pairs repeatedly.
type prediction struct{ rate, deviation, fits float64 }

// pairCovariance is the covariance of the rates of two pairs: one term for the kind itself, one for its neighbour, and
// one for the two together. No term is common to all pairs: disappointing first tries say nothing about other families,
// so that these are still tried.
func pairCovariance(x, y KindPair) float64 {
	const variance = 0.02 // of each of the three terms
	self, beside := x.Self.similarity(y.Self), x.Beside.similarity(y.Beside)
	return variance * (self + beside + self*beside)
}

// similarity is 0 for kinds of two families. Within a family half of it is constant, and half falls by a factor of e
// with every fourfold batch, number of devices or number of nodes.
func (k Kind) similarity(other Kind) float64 {
	if k.Family != other.Family {
		return 0
	}
	const doublings = 2
	apart := math.Abs(math.Log2(float64(max(k.LocalBatch, 1))) - math.Log2(float64(max(other.LocalBatch, 1))))
	for _, of := range [...][2]int{{k.Devices, other.Devices}, {k.Nodes, other.Nodes}} {
		if of[0] != of[1] {
			apart += math.Abs(math.Log2(float64(max(of[0], 1))) - math.Log2(float64(max(of[1], 1))))
		}
	}
	return 0.5 + 0.5*math.Exp(-apart/doublings)
}

// NewInterference starts from known samples of a type of device. Samples from another environment count less, and the
// first measurement in this one replaces them.
func NewInterference(under string, known []InterferenceSample) *Interference {
	return &Interference{under: under, samples: slices.Clone(known)}
}

// ready builds the processes on first use: a record is often read and seldom queried.
func (m *Interference) ready() {
	if m.at == nil {
		m.learn()
	}
}

// learn rebuilds the processes from all samples.
func (m *Interference) learn() {
	const (
		expectedRate = 0.6  // two jobs together achieve a fifth more than one alone
		expectedFit  = 0.95 // most pairs fit
	)
	m.at, m.row, m.predictions = map[KindPair]int{}, map[KindPair]int{}, map[KindPair]prediction{}
	m.rates, m.fits = NewProcess(expectedRate, pairCovariance), NewProcess(expectedFit, pairCovariance)
	for i, e := range m.samples {
		m.at[e.KindPair] = i
		m.add(e)
	}
}

// add adds a sample to the processes.
func (m *Interference) add(e InterferenceSample) {
	const rateError, fitError, staleError = 0.02, 0.05, 0.2 // the spread between jobs of one kind
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

// Shared records the rates of two jobs measured side by side: step time alone over step time beside the other. It
// ignores rates that are not positive and finite.
func (m *Interference) Shared(a, b Kind, rateA, rateB float64) {
	if !(rateA > 0 && rateB > 0) || math.IsInf(rateA+rateB, 0) {
		return
	}
	m.record(InterferenceSample{KindPair: KindPair{a, b}, Rate: rateA, Count: 1, Under: m.under})
	m.record(InterferenceSample{KindPair: KindPair{b, a}, Rate: rateB, Count: 1, Under: m.under})
}

// Measured records the rate of a job beside all of others: step time alone over step time there. It ignores rates that
// are not positive and finite.
func (m *Interference) Measured(self Kind, others []Kind, rate float64) {
	if rate > 0 && !math.IsInf(rate, 0) && len(others) > 0 {
		m.record(InterferenceSample{KindPair: KindPair{self, combinedKind(others)}, Rate: rate, Count: 1, Under: m.under})
	}
}

// Measurements returns how often the rate of a job beside others was measured in this environment.
func (m *Interference) Measurements(self Kind, others []Kind) int {
	m.ready()
	if len(m.samples) == 0 {
		return 0
	}
	if i, met := m.at[KindPair{self, combinedKind(others)}]; met && m.samples[i].Under == m.under {
		return m.samples[i].Count
	}
	return 0
}

// OutOfMemory records that two jobs do not fit on one device.
func (m *Interference) OutOfMemory(a, b Kind) {
	m.record(InterferenceSample{KindPair: KindPair{a, b}, OutOfMemory: true, Under: m.under})
	m.record(InterferenceSample{KindPair: KindPair{b, a}, OutOfMemory: true, Under: m.under})
}

func (m *Interference) record(e InterferenceSample) {
	m.ready()
	clear(m.predictions)
	i, met := m.at[e.KindPair]
	switch {
	case !met:
		if len(m.samples) >= maxSamples {
			m.forget()
		}
		m.at[e.KindPair] = len(m.samples)
		m.samples = append(m.samples, e)
		m.add(e)
	case m.samples[i].Under != e.Under || m.samples[i].OutOfMemory != e.OutOfMemory:
		m.samples = append(slices.Delete(m.samples, i, i+1), e)
		m.learn()
	case e.OutOfMemory:
		m.toEnd(i)
	default:
		m.toEnd(i)
		known := &m.samples[len(m.samples)-1]
		known.Count = min(known.Count+1, maxCount)
		known.Rate += (e.Rate - known.Rate) / float64(known.Count)
		m.rates.Replace(m.row[e.KindPair], known.Rate)
	}
}

// toEnd makes a sample the newest.
func (m *Interference) toEnd(i int) {
	e := m.samples[i]
	m.samples = append(slices.Delete(m.samples, i, i+1), e)
	for k := i; k < len(m.samples); k++ {
		m.at[m.samples[k].KindPair] = k
	}
}

// forget drops a quarter of the samples: those not measured for the longest time. Samples of pairs that do not fit go
// last, since learning one again costs a job its work.
func (m *Interference) forget() {
	much := len(m.samples) - maxSamples*3/4
	for _, outOfMemory := range []bool{false, true} {
		m.samples = slices.DeleteFunc(m.samples, func(e InterferenceSample) bool {
			goes := much > 0 && e.OutOfMemory == outOfMemory
			if goes {
				much--
			}
			return goes
		})
	}
	m.learn()
}

// Samples returns all samples, the newest last: the input of NewInterference. A nil Interference has none, as in a
// stored record without rates.
func (m *Interference) Samples() []InterferenceSample {
	if m == nil {
		return nil
	}
	return slices.Clone(m.samples)
}

// Clone returns an interference of its own with the same samples: predictions are cached, so two goroutines must not
// share one.
func (m *Interference) Clone() *Interference {
	if m == nil {
		return NewInterference("", nil)
	}
	return NewInterference(m.under, m.samples)
}

// Without returns what would be known if a job had never been measured beside exactly these others.
func (m *Interference) Without(self Kind, others []Kind) *Interference {
	pair := KindPair{self, combinedKind(others)}
	return NewInterference(m.under, slices.DeleteFunc(m.Samples(), func(e InterferenceSample) bool { return e.KindPair == pair }))
}

// StoredInterference is the JSON form of an Interference; the processes follow from it.
type StoredInterference struct {
	Under   string               `json:"under,omitempty"`
	Samples []InterferenceSample `json:"encounters"`
}

// MarshalJSON encodes the samples. It may run concurrently with predictions.
func (m *Interference) MarshalJSON() ([]byte, error) {
	return json.Marshal(StoredInterference{m.under, m.samples})
}

// UnmarshalJSON rebuilds the processes, so that they predict the same as before encoding.
func (m *Interference) UnmarshalJSON(data []byte) error {
	var w StoredInterference
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*m = *NewInterference(w.Under, w.Samples)
	return nil
}

// Rate predicts the rate of a job of one kind beside one of another, with its standard deviation.
func (m *Interference) Rate(self, beside Kind) (rate, deviation float64) {
	f := m.predict(self, beside)
	return f.rate, f.deviation
}

// Fits predicts the probability that two jobs fit on one device. Memory grows with the batch: the probability is 0 if
// jobs of the same families did not fit with batches that were no larger, and 1 if they did with batches that were no
// smaller.
func (m *Interference) Fits(a, b Kind) float64 { return m.predict(a, b).fits }

func (m *Interference) predict(self, beside Kind) prediction {
	m.ready()
	pair := KindPair{self, beside}
	f, asked := m.predictions[pair]
	if !asked {
		f.rate, f.deviation = m.rates.Predict(pair)
		f.rate, f.fits = max(f.rate, 0), m.likelyFit(self, beside)
		m.predictions[pair] = f
	}
	return f
}

// RateAmong predicts the rate of a job beside any number of others. If the job was measured beside exactly these, it
// returns that rate. Else each of them lengthens the steps by as much as it would if it were the only one, and the
// deviation covers at least the worst case, in which each takes as large a part of the rate as of an undisturbed job.
func (m *Interference) RateAmong(self Kind, others []Kind) (rate, deviation float64) {
	if len(others) == 0 {
		return 1, 0
	}
	if len(others) == 1 || m.Measurements(self, others) > 0 {
		return m.Rate(self, combinedKind(others))
	}
	const least = 0.01
	longer, worst, variance := 0.0, 1.0, 0.0
	for _, other := range others {
		r, d := m.Rate(self, other)
		r = max(r, least)
		longer, worst, variance = longer+1/r-1, worst-(1-r), variance+d*d/(r*r*r*r)
	}
	rate = 1 / max(1+longer, least)
	// An error of x becomes x^-2 times as large in 1/x.
	return rate, max(math.Sqrt(variance)*rate*rate, rate-max(worst, 0))
}

func (m *Interference) likelyFit(a, b Kind) float64 {
	likely, _ := m.fits.Predict(KindPair{a, b})
	for _, e := range m.samples {
		switch {
		case e.Under != m.under:
		case e.OutOfMemory && e.Self.needsAtMost(a) && e.Beside.needsAtMost(b):
			return 0
		case !e.OutOfMemory && a.needsAtMost(e.Self) && b.needsAtMost(e.Beside):
			likely = 1
		}
	}
	return min(max(likely, 0), 1)
}

// needsAtMost reports whether k needs no more memory than other, as far as is known.
func (k Kind) needsAtMost(other Kind) bool {
	return k.Family == other.Family && k.LocalBatch <= other.LocalBatch
}
