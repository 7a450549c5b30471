package train

import (
	"strings"
	"testing"
	"time"
)

func TestAJobThatReportsNoMoreStepsIsSilent(t *testing.T) {
	last := time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC)
	running := Attempt{Job: "a", Phase: PhaseRunning}
	report := func(step float64) AttemptReport {
		return AttemptReport{Steps: Steps{Total: 70, Seconds: step, At: last}}
	}
	leaving, ended := running, report(0.1)
	leaving.Stop, ended.Ended = StopPreempt, "finished"
	for name, c := range map[string]struct {
		attempt Attempt
		report  AttemptReport
		after   time.Duration
		want    string
	}{
		"short steps, less than a minute":  {running, report(0.1), 59 * time.Second, ""},
		"short steps, a minute":            {running, report(0.1), 61 * time.Second, "no step was reported for 1m1s, since 2030-01-01T09:00:00Z (step 70); a step usually takes 100ms"},
		"long steps, less than twenty":     {running, report(30), 9 * time.Minute, ""},
		"long steps, more than twenty":     {running, report(30), 11 * time.Minute, "a step usually takes 30s"},
		"no heartbeats at all":             {running, AttemptReport{}, time.Hour, ""},
		"a step of unknown time":           {running, report(0), time.Hour, ""},
		"asked to stop":                    {leaving, report(0.1), time.Hour, ""},
		"its code said that it has ended":  {running, ended, time.Hour, ""},
		"an attempt that has ended":        {Attempt{Phase: PhaseExited}, report(0.1), time.Hour, ""},
		"an attempt that has not started ": {Attempt{Phase: PhaseClaimed}, report(0.1), time.Hour, ""},
	} {
		r, silent := Silent(c.attempt, c.report, last.Add(c.after))
		if silent != (c.want != "") || !strings.Contains(r.Message, c.want) || silent && r.Code != CodeSilent {
			t.Errorf("%s: %v %+v, want %q", name, silent, r, c.want)
		}
	}
}
