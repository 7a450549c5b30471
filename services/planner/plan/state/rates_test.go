package state

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func nightTime(minutes int) time.Time {
	return time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(minutes) * time.Minute)
}

func TestBestStart(t *testing.T) {
	rates := Rates{{From: nightTime(0), Cost: 4}, {From: nightTime(60), Cost: 2}, {From: nightTime(120), Cost: 1}, {From: nightTime(180), Cost: 3}, {From: nightTime(240)}}
	for _, c := range []struct {
		name                string
		now, latest, length int
		start               int
		saving              float64
	}{
		{"the cheapest hour", 0, 200, 60, 120, 0.75},
		{"no slack", 0, 0, 60, 0, 0},
		{"the slack ends before", 0, 90, 60, 90, 1 - 1.5/4},
		{"two hours end with the cheapest", 0, 200, 120, 60, 0.5},
		{"half an hour, the soonest", 0, 200, 30, 120, 0.75},
		{"at the best moment already", 120, 200, 60, 120, 0},
		{"longer than what is foretold", 0, 200, 300, 0, 0},
		{"before the forecast", -60, 200, 60, -60, 0},
		{"a forecast that is over", 300, 400, 60, 300, 0},
	} {
		best, atOnce := rates.BestStart(nightTime(c.now), nightTime(c.latest), time.Duration(c.length)*time.Minute)
		start, saving := best.From, 0.0
		if atOnce.Cost > 0 {
			saving = 1 - best.Cost/atOnce.Cost
		}
		if !start.Equal(nightTime(c.start)) || saving < c.saving-1e-9 || saving > c.saving+1e-9 {
			t.Errorf("%s: %s saves %g, want %s and %g", c.name, start, saving, nightTime(c.start), c.saving)
		}
	}
}

// TestNoMinuteIsBetter tries every minute.
func TestNoMinuteIsBetter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var rates Rates
		for at := 0; at < 600; at += rapid.IntRange(1, 90).Draw(t, "gap") {
			rates = append(rates, Rate{From: nightTime(at), Cost: rapid.Float64Range(0.1, 10).Draw(t, "cost")})
		}
		now, slack := rapid.IntRange(0, 300).Draw(t, "now"), rapid.IntRange(0, 300).Draw(t, "slack")
		length := time.Duration(rapid.IntRange(1, 200).Draw(t, "length")) * time.Minute
		best, atOnce := rates.BestStart(nightTime(now), nightTime(now+slack), length)
		start := best.From
		if start.Before(nightTime(now)) || start.After(nightTime(now+slack)) {
			t.Fatalf("starts at %s, from %d with %d minutes of slack", start, now, slack)
		}
		chosen, known := rates.Mean(start, start.Add(length))
		if !known {
			if !start.Equal(nightTime(now)) {
				t.Fatalf("put off to %s, of which nothing is foretold", start)
			}
			return
		}
		for m := now; m <= now+slack; m++ {
			if cost, known := rates.Mean(nightTime(m), nightTime(m).Add(length)); known && cost.Cost < chosen.Cost*(1-LeastSaving)-1e-9 {
				t.Fatalf("starts at %s for %+v instead of %+v, minute %d costs %+v", start, chosen, atOnce, m, cost)
			}
		}
	})
}
