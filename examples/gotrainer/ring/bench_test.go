package ring_test

import (
	"errors"
	"testing"

	"github.com/switchyard-dl/switchyard/examples/gotrainer/ring"
)

func BenchmarkAllReduce(b *testing.B) {
	const world, length = 2, 200_000
	b.SetBytes(8 * length)
	errs := together(freeAddress(b), world, never, func(r *ring.Ring) error {
		v := make([]float64, length)
		for range b.N {
			if err := r.AllReduce(v); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
}
