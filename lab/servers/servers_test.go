package servers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// On each workload optimus, as live jobs get it, is ahead of Tetris, and no job waits much longer than under DRF. The
// same workload gives the same figures, and balanced blocks never cost time.
func TestTheNineTrainings(t *testing.T) {
	for seed := range uint64(5) {
		jobs := Jobs(seed, 9, 1)
		results := map[string]Result{}
		for _, p := range Policies() {
			r, err := Run(jobs, p, Standard())
			if err != nil {
				t.Fatal(err)
			}
			results[p.Name()] = r
			if again, err := Run(jobs, p, Standard()); err != nil || !cmp.Equal(r, again) {
				t.Errorf("seed %d: %+v, then %+v (%v)", seed, r, again, err)
			}
			if uneven, err := Run(Jobs(seed, 9, 1.34), p, Standard()); err != nil || uneven.JCT < r.JCT {
				t.Errorf("seed %d, %s: %s with uneven servers, %s with even ones (%v)", seed, p.Name(), uneven.JCT, r.JCT, err)
			}
		}
		own, drf, tetris := results["optimus"], results["drf"], results["tetris"]
		if own.JCT >= tetris.JCT || own.Makespan >= tetris.Makespan || own.Makespan > drf.Makespan || own.JCT > drf.JCT*13/10 {
			t.Errorf("seed %d: optimus %+v, drf %+v, tetris %+v", seed, own, drf, tetris)
		}
	}
}
