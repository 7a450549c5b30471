package traces

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
)

// Bounds are average completion times that no policy can beat on a workload.
type Bounds struct {
	// AloneSeconds: each job alone on the cluster, at each epoch on the devices and with the batch that are truly best.
	AloneSeconds float64
	// DeviceTimeSeconds: each job needs at least its device time at the best efficiency, and the cluster is one
	// machine that serves the shortest remaining job with all its devices at once. Shortest remaining time first is
	// then optimal.
	DeviceTimeSeconds float64
}

// Best is the larger of the two.
func (b Bounds) Best() float64 { return max(b.AloneSeconds, b.DeviceTimeSeconds) }

// LowerBounds computes both with true step times.
func LowerBounds(c Config) (Bounds, error) {
	sources, err := c.sources()
	if err != nil {
		return Bounds{}, err
	}
	total := 0
	for _, p := range c.Pools {
		total += p.Nodes * p.Devices
	}
	type need struct{ alone, devices float64 }
	needs := map[string]need{}
	var b Bounds
	var flows []flow
	for _, s := range sources {
		n, known := needs[s.Name]
		if !known {
			n.alone, n.devices = s.leastTimes()
			needs[s.Name] = n
		}
		b.AloneSeconds += (s.startSeconds + n.alone) / float64(len(sources))
		flows = append(flows, flow{s.arrival.Seconds, (s.startSeconds + n.devices) / float64(total)})
	}
	b.DeviceTimeSeconds = meanFlow(flows)
	return b, nil
}

// leastTimes are the least time that an application takes on any devices, and the least device time.
func (s *source) leastTimes() (seconds, deviceSeconds float64) {
	choices := s.choices()
	ends := s.Training.ends
	for epoch := range s.Profile.Epochs {
		fastest, leanest := 0.0, 0.0
		for _, c := range choices {
			rate := s.Training.gain(c.global, epoch, s.Limits.BaseBatch) / c.stepSeconds / s.slowdown
			fastest, leanest = max(fastest, rate), max(leanest, rate/float64(c.devices))
		}
		progress := ends[epoch+1] - ends[epoch]
		seconds += progress / fastest
		deviceSeconds += progress / leanest
	}
	return seconds, deviceSeconds
}

// choice is devices and a batch with the true step time.
type choice struct {
	devices, global int
	stepSeconds     float64
}

// choices are all sizes of gangs, packed, on each model, with batches in geometric steps.
func (s *source) choices() []choice {
	const samples = 40
	var all []choice
	for _, p := range s.config.Pools {
		l := s.limitsOn(p.Model)
		for n := 1; n <= min(p.Nodes*p.Devices, l.MaxBatch/l.MinLocal); n++ {
			shape := packed(n, p.Devices)
			low, high := float64(max(l.BaseBatch, n*l.MinLocal)), float64(l.MaxBatch)
			for k := range samples {
				batch := low * math.Pow(high/low, float64(k)/(samples-1))
				b := split(int(math.Ceil(batch)), n, l)
				if b.LocalBatch < l.MinLocal {
					continue
				}
				all = append(all, choice{n, b.Global(n), s.Steps[p.Model].At(shape, b.LocalBatch).With(b.Accumulation)})
			}
		}
	}
	return all
}

// flow is work for one machine that arrives at a time.
type flow struct{ arrival, work float64 }

// flowHeap is a heap of remaining work, the shortest first.
type flowHeap []flow

func (q flowHeap) Len() int           { return len(q) }
func (q flowHeap) Less(i, j int) bool { return q[i].work < q[j].work }
func (q flowHeap) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push and Pop make it a heap.Interface.
func (q *flowHeap) Push(x any) { *q = append(*q, x.(flow)) }

// Pop takes the last one off.
func (q *flowHeap) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}

// meanFlow is the mean time from arrival to end under shortest remaining time first.
func meanFlow(line []flow) float64 {
	if len(line) == 0 {
		return 0
	}
	slices.SortFunc(line, func(x, y flow) int { return cmp.Compare(x.arrival, y.arrival) })
	var queue flowHeap
	now, sum, next := 0.0, 0.0, 0
	for next < len(line) || len(queue) > 0 {
		if len(queue) == 0 {
			now = max(now, line[next].arrival)
		}
		for next < len(line) && line[next].arrival <= now {
			heap.Push(&queue, line[next])
			next++
		}
		until := math.Inf(1)
		if next < len(line) {
			until = line[next].arrival
		}
		if queue[0].work <= until-now {
			now += queue[0].work
			sum += now - heap.Pop(&queue).(flow).arrival
			continue
		}
		queue[0].work -= until - now
		now = until
	}
	return sum / float64(len(line))
}
