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

// SilentSince returns the time of the last step of code that has gone silent. It returns false as long as the silence
// is no longer than twenty of its own steps and a minute.
func (s Steps) SilentSince(now time.Time) (time.Time, bool) {
	bound := max(time.Duration(silentSteps*s.Seconds*float64(time.Second)), silentFloor)
	if !s.Known() || !(s.Seconds > 0) || now.Sub(s.At) < bound {
		return time.Time{}, false
	}
	return s.At, true
}

// Silent returns the reason of a running attempt whose code has gone silent; false if it has not, was asked to stop, or
// has ended.
func Silent(a Attempt, r AttemptReport, now time.Time) (Reason, bool) {
	since, silent := r.Steps.SilentSince(now)
	if !silent || a.Phase != PhaseRunning || a.Stop != StopNone || r.Ended != "" {
		return Reason{}, false
	}
	return Reason{
		Code: CodeSilent,
		Message: fmt.Sprintf("no step was reported for %s, since %s (step %d); a step usually takes %s", now.Sub(since).Round(time.Second),
			since.UTC().Format(time.RFC3339), r.Steps.Total, time.Duration(r.Steps.Seconds*float64(time.Second)).Round(time.Millisecond)),
		Hint: fmt.Sprintf("switchyard logs %s shows where it is; switchyard cancel %s ends it", a.Job, a.Job),
	}, true
}
