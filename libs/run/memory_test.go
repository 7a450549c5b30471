package run

import "testing"

func TestTheHeapIsKeptSmallWhileThatCostsLittle(t *testing.T) {
	for _, row := range []struct {
		percent int
		share   float64
		want    int
	}{
		{lowPercent, 0, lowPercent},
		{lowPercent, 0.04, lowPercent},
		{lowPercent, 0.1, 100},
		{lowPercent, 1, highPercent},
		{100, 0.03, 100}, // it would be twice as much
		{highPercent, 0.1, highPercent},
		{highPercent, 0.005, lowPercent},
	} {
		if got := gcPercent(row.percent, row.share); got != row.want {
			t.Errorf("%d %% and %g of a processor: %d %%, want %d", row.percent, row.share, got, row.want)
		}
	}
}
