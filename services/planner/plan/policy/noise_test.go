package policy

import "testing"

// TestTheNearestNoiseCounts: a part of the training in which nothing was measured has the noise of the nearest one that
// was, the earlier one first.
func TestTheNearestNoiseCounts(t *testing.T) {
	table := make(noiseTable, noiseParts)
	table[10], table[20] = []scaleAt{{64, 100}}, []scaleAt{{64, 200}}
	for part, want := range map[int]float64{0: 100, 10: 100, 15: 100, 16: 200, 20: 200, noiseParts - 1: 200} {
		if got := table.near(part); len(got) != 1 || got[0].Scale != want {
			t.Errorf("part %d: %v, want the scale %v", part, got, want)
		}
	}
	if got := noiseTable(nil).near(3); got != nil {
		t.Errorf("nothing measured: %v", got)
	}
}
