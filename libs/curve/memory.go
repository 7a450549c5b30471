package curve

import (
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// MemoryPoint is the peak device memory of one worker at a batch per device.
type MemoryPoint struct {
	LocalBatch int     `json:"local_batch"`
	Bytes      float64 `json:"bytes"`
}

// fixedMemory is the assumed share of memory that does not depend on the batch if only one batch was seen.
const fixedMemory = 0.25

// FitMemory fits bytes = a + b*batch with a, b >= 0 through the highest memory seen at each batch. With one batch it
// assumes that a quarter is fixed; with none it returns ErrTooFew.
func FitMemory(points []MemoryPoint) (train.Memory, error) {
	peaks := make(map[int]float64)
	var batches []int
	for _, p := range points {
		if !inRange(p.Bytes) || p.LocalBatch < 1 || p.LocalBatch > 1<<30 {
			continue
		}
		if _, seen := peaks[p.LocalBatch]; !seen {
			batches = append(batches, p.LocalBatch)
		}
		peaks[p.LocalBatch] = math.Max(peaks[p.LocalBatch], p.Bytes)
	}
	if len(batches) == 0 {
		return train.Memory{}, ErrTooFew
	}
	slices.Sort(batches)
	if len(batches) == 1 {
		peak := peaks[batches[0]]
		return train.Memory{FixedBytes: fixedMemory * peak, SampleBytes: (1 - fixedMemory) * peak / float64(batches[0]), Points: 1}, nil
	}
	eq := newEquations(2)
	for _, b := range batches {
		eq.add([]float64{1, float64(b)}, peaks[b], 1)
	}
	x := eq.solve()
	fit := train.Memory{FixedBytes: x[0], SampleBytes: x[1], Points: len(batches)}
	for _, b := range batches {
		fit.ErrorBytes = math.Max(fit.ErrorBytes, math.Abs(x[0]+x[1]*float64(b)-peaks[b]))
	}
	return fit, nil
}

// Peaks holds the highest memory seen of jobs of each family, by batch; a new job of the family starts from it. The
// zero value is ready for use.
type Peaks struct{ Shelf[MemoryPoint] }

// Add keeps a peak if it is the highest with its batch.
func (p *Peaks) Add(family string, peak MemoryPoint) {
	points := slices.Clone(p.Of(family))
	if i := slices.IndexFunc(points, func(o MemoryPoint) bool { return o.LocalBatch == peak.LocalBatch }); i >= 0 {
		peak.Bytes = max(peak.Bytes, points[i].Bytes)
		points = slices.Delete(points, i, i+1)
	}
	p.Put(family, append(points, peak))
}
