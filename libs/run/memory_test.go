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
		{lowPercent, 0.06, usualPercent},
		{usualPercent, 0.03, usualPercent}, // it would be twice as much
		{usualPercent, 0.005, lowPercent},
	} {
		if got := gcPercent(row.percent, row.share); got != row.want {
			t.Errorf("%d %% and %g of a processor: %d %%, want %d", row.percent, row.share, got, row.want)
		}
	}
}
