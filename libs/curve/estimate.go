package curve

import (
	"math"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// The rule for estimates that turn out too low: a job whose predicted total exceeds its declared estimate by more than
// 20 %, even at the low end of what is predicted, loses one priority step, and one more for each doubling of the ratio, but never more than ten.
const (
	OverrunTolerance = 1.2
	MaxLostSteps     = 10
)

// Estimate is a job's total running time as it looks now.
type Estimate struct {
	// Seconds is the expected total, what has passed included.
	Seconds float64 `json:"seconds"`
	// Ratio is Seconds over the declared estimate; 1 where none was declared.
	Ratio float64 `json:"ratio"`
	// Overrun says that the declared estimate is exceeded beyond OverrunTolerance, uncertainty allowed for.
	Overrun bool `json:"overrun"`
}

// LostSteps is how many priority steps the job loses: floor(log2(Ratio))+1 beyond the tolerance, at most MaxLostSteps.
func (e Estimate) LostSteps() int {
	if !e.Overrun {
		return 0
	}
	return int(math.Min(math.Floor(math.Log2(e.Ratio))+1, MaxLostSteps))
}

// CorrectEstimate compares what a job declared with what is seen of it. Before the first epoch has ended the
// prediction is not believed and the declared total stands, unless more time than that has passed already. The low end
// of the remaining seconds decides about an overrun: first epochs are slow, and who declared well would be accused of it. A
// declared estimate that is not positive means none: then nothing can be overrun. Values that are not finite count as zero.
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

// sane maps what is negative, infinite or no number to zero, and bounds the rest so that sums stay finite.
func sane(x float64) float64 {
	if !(x > 0) || math.IsInf(x, 1) {
		return 0
	}
	return math.Min(x, math.MaxFloat64/4)
}
