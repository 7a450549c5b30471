package render

import (
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestETA(t *testing.T) {
	now := time.Unix(1000, 0)
	at := func(low, expected, high float64) *train.Moment {
		in := func(s float64) time.Time { return now.Add(time.Duration(s * float64(time.Second))) }
		return &train.Moment{Low: in(low), Expected: in(expected), High: in(high)}
	}
	for want, p := range map[string]train.Predicted{
		"-":                                {},
		"2m00s (1m30s to 5m00s)":           {Finish: at(90, 120, 300)},
		"2m00s (up to 5m00s)":              {Finish: at(-3, 120, 300)},
		"2m00s":                            {Finish: at(120, 120, 120)},
		"within 30s":                       {Finish: at(-20, 0, 30)},
		"within 1s":                        {Finish: at(-20, -2, 0.1)},
		"overdue by 30s":                   {Finish: at(-90, -60, -30)},
		"overdue by 1s":                    {Finish: at(0, 0, 0)},
		"starts in 2m00s (1m30s to 5m00s)": {Start: at(90, 120, 300), Finish: at(900, 1200, 3000)},
		"starts within 30s":                {Start: at(-90, -60, 30)},
		"start is overdue by 30s":          {Start: at(-90, -60, -30)},
	} {
		if got := ETA(p, now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
