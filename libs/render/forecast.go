package render

import (
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// In says how long it is until a predicted moment, with its interval. A prediction that was missed says so.
func In(m train.Moment, now time.Time) string {
	low, expected, high := m.Low.Sub(now).Seconds(), m.Expected.Sub(now).Seconds(), m.High.Sub(now).Seconds()
	switch {
	case high <= 0:
		return "overdue by " + seconds(max(-high, 1))
	case expected < 1:
		return "within " + seconds(max(high, 1))
	case m.Low.Equal(m.High):
		return seconds(expected)
	case low < 1:
		return fmt.Sprintf("%s (up to %s)", seconds(expected), seconds(high))
	}
	return fmt.Sprintf("%s (%s to %s)", seconds(expected), seconds(low), seconds(high))
}

// seconds prints a predicted time, which is never known to a tenth of a second.
func seconds(s float64) string {
	if s < 9.5 {
		return fmt.Sprintf("%.0fs", s)
	}
	return Duration(s)
}

// ETA says when a job ends or, if it waits, starts.
func ETA(p train.Predicted, now time.Time) string {
	switch {
	case p.Start != nil && !p.Start.High.After(now):
		return "start is " + In(*p.Start, now)
	case p.Start != nil && p.Start.Expected.Sub(now) < time.Second:
		return "starts " + In(*p.Start, now)
	case p.Start != nil:
		return "starts in " + In(*p.Start, now)
	case p.Finish != nil:
		return In(*p.Finish, now)
	}
	return "-"
}
