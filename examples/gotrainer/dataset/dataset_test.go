package dataset_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/examples/gotrainer/dataset"
)

func TestSamplesDependOnSeedAndIndexAlone(t *testing.T) {
	const features, classes = 7, 4
	first := dataset.New(9, features, classes).Sampler()
	second := dataset.New(9, features, classes).Sampler()
	other := dataset.New(10, features, classes).Sampler()
	a, b := make([]float64, features), make([]float64, features)
	for _, i := range []int{5, 0, 5, 199} {
		second.Training(i+1, b) // what was drawn before must not matter
		if first.Training(i, a) != second.Training(i, b) || !slices.Equal(a, b) {
			t.Fatalf("sample %d differs between two samplers of one set", i)
		}
		if other.Training(i, b); slices.Equal(a, b) {
			t.Fatalf("sample %d is the same under another seed", i)
		}
		if first.HeldOut(i, b); slices.Equal(a, b) {
			t.Fatalf("sample %d is held out and trained on", i)
		}
	}
}

func TestEveryClassOccursAboutEquallyOften(t *testing.T) {
	const features, classes, samples = 3, 5, 5000
	sampler := dataset.New(1, features, classes).Sampler()
	counts := make([]int, classes)
	x := make([]float64, features)
	for i := range samples {
		counts[sampler.Training(i, x)]++
	}
	for c, n := range counts {
		if n < samples/classes*8/10 || n > samples/classes*12/10 {
			t.Errorf("class %d has %d of %d samples", c, n, samples)
		}
	}
}

func TestEpochUsesEverySampleOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := dataset.Schedule{
			Samples: rapid.IntRange(1, 200).Draw(t, "samples"),
			Workers: rapid.IntRange(1, 6).Draw(t, "workers"),
			Repeat:  rapid.Bool().Draw(t, "repeat"),
		}
		order := rand.New(rand.NewPCG(1, 2)).Perm(s.Samples)
		used := make([]int, s.Samples)
		for had := 0; !s.Done(had); {
			total, batch := 0, rapid.IntRange(1, 40).Draw(t, "batch")
			for worker := range s.Workers {
				part := s.Append(nil, order, had, batch, worker)
				if len(part) > (batch+s.Workers-1)/s.Workers {
					t.Fatalf("worker %d has %d samples after %d, more than its share of %d", worker, len(part), had, batch)
				}
				total += len(part)
				for _, i := range part {
					used[i]++
				}
			}
			if total == 0 || total > batch {
				t.Fatalf("the step of %d after %d has %d samples", batch, had, total)
			}
			had += batch
		}
		want := 1
		if s.Repeat {
			want = s.Workers
		}
		for i, n := range used {
			if n != want {
				t.Fatalf("sample %d is used %d times, want %d", i, n, want)
			}
		}
	})
}
