package curve

import (
	"math"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// The rule for estimates that turn out too low: a job whose predicted total exceeds its declared estimate by more than
// 20 %, even at the low end of the prediction, loses one priority step, and one more for each doubling of the ratio,
// but never more than ten.
const (
	OverrunTolerance = 1.2
	MaxLostSteps     = 10
)

// Estimate is a job's total running time as currently predicted.
type Estimate struct {
	// Seconds is the expected total, including the time already passed.
	Seconds float64 `json:"seconds"`
	// Ratio is Seconds over the declared estimate; 1 if none was declared.
	Ratio float64 `json:"ratio"`
	// Overrun reports whether the declared estimate is exceeded by more than OverrunTolerance even at the low end of
	// the prediction.
	Overrun bool `json:"overrun"`
}

// LostSteps returns how many priority steps the job loses: floor(log2(Ratio))+1 beyond the tolerance, at most
// MaxLostSteps.
func (e Estimate) LostSteps() int {
	if !e.Overrun {
		return 0
	}
	return int(math.Min(math.Floor(math.Log2(e.Ratio))+1, MaxLostSteps))
}

// CorrectEstimate compares the declared running time of a job with its observed progress. Before the first epoch has
// ended the prediction is not trusted and the declared total stands, unless more time has already passed. The low end
// of the remaining seconds decides about an overrun: first epochs are slow, and a good estimate would otherwise count
// as an overrun. A declared estimate that is not positive means none, which cannot be overrun. Values that are not
// finite count as zero.
func CorrectEstimate(declaredSeconds, elapsedSeconds float64, remaining train.Span, epochsDone int) Estimate {
	declared, elapsed := sane(declaredSeconds), sane(elapsedSeconds)
	total, least := elapsed+sane(remaining.Expected), elapsed+sane(remaining.Low)
	if epochsDone < 1 && declared > 0 {
		total = math.Max(declared, elapsed)
		least = total
	}
	e := Estimate{Seconds: total, Ratio: 1}
	if declared > 0 {
		e.Ratio = math.Min(total/declared, math.MaxFloat64)
		e.Overrun = math.Min(least, total)/declared > OverrunTolerance
	}
	return e
}

// sane maps negative, infinite and NaN values to zero, and bounds the others so that sums stay finite.
func sane(x float64) float64 {
	if !(x > 0) || math.IsInf(x, 1) {
		return 0
	}
	return math.Min(x, math.MaxFloat64/4)
}
