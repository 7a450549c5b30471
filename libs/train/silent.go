package train

import (
	"fmt"
	"time"
)

const (
	// silentSteps is the number of a job's own steps without a heartbeat after which it counts as silent.
	silentSteps = 20
	// silentFloor is the least silence: an evaluation or a checkpoint may take as long.
	silentFloor = time.Minute
	// CodeSilent is the code of the reason.
	CodeSilent = "Silent"
)

// SilentAt returns from when code counts as silent if it reports no further step: after twenty of its own steps, and a
// minute. It returns false for code that reports no steps.
func (s Steps) SilentAt() (time.Time, bool) {
	return s.At.Add(max(time.Duration(silentSteps*s.Seconds*float64(time.Second)), silentFloor)), s.Known() && s.Seconds > 0
}

// Silent returns the reason of a running attempt whose code has gone silent; false if it has not, was asked to stop, or
// has ended.
func Silent(a Attempt, r AttemptReport, now time.Time) (Reason, bool) {
	from, known := r.Steps.SilentAt()
	if !known || now.Before(from) || a.Phase != PhaseRunning || a.Stop != StopNone || r.Ended != "" {
		return Reason{}, false
	}
	return Reason{
		Code: CodeSilent,
		Message: fmt.Sprintf("no step was reported for %s, since %s (step %d); a step usually takes %s", now.Sub(r.Steps.At).Round(time.Second),
			r.Steps.At.UTC().Format(time.RFC3339), r.Steps.Total, time.Duration(r.Steps.Seconds*float64(time.Second)).Round(time.Millisecond)),
		Hint: fmt.Sprintf("switchyard logs %s shows where it is; switchyard cancel %s ends it", a.Job, a.Job),
	}, true
}
