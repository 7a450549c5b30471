package run

import "testing"

func TestGarbageIsKeptSmallWhileThatCostsLittle(t *testing.T) {
	for _, row := range []struct {
		percent int
		share   float64
		want    int
	}{
		{thrifty, 0, thrifty},
		{thrifty, 0.04, thrifty},
		{thrifty, 0.06, usual},
		{usual, 0.03, usual}, // it would be twice as much
		{usual, 0.005, thrifty},
	} {
		if got := growth(row.percent, row.share); got != row.want {
			t.Errorf("%d %% and %g of a processor: %d %%, want %d", row.percent, row.share, got, row.want)
		}
	}
}
