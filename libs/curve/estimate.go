package curve

import "math"

// The rule for estimates that turn out too low: a job whose predicted total exceeds its declared estimate by more than
// 20 % loses one priority step, and one more for each doubling of the ratio, but never more than ten.
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
	// Overrun says that Ratio exceeds OverrunTolerance.
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
// prediction is not believed and the declared total stands, unless more time than that has passed already. A declared
// estimate that is not positive means none: then nothing can be overrun. Values that are not finite count as zero.
func CorrectEstimate(declaredSeconds, elapsedSeconds, predictedRemainingSeconds float64, epochsDone int) Estimate {
	declared, elapsed, remaining := sane(declaredSeconds), sane(elapsedSeconds), sane(predictedRemainingSeconds)
	total := elapsed + remaining
	if epochsDone < 1 && declared > 0 {
		total = math.Max(declared, elapsed)
	}
	e := Estimate{Seconds: total, Ratio: 1}
	if declared > 0 {
		e.Ratio = math.Min(total/declared, math.MaxFloat64)
		e.Overrun = e.Ratio > OverrunTolerance
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
