package traces

import (
	"cmp"
	"slices"

	"github.com/switchyard-dl/switchyard/lab/rows"
)

// StepTimes are the measured step times of one application on one model of device.
type StepTimes struct {
	// placements are by the devices on each node, rotated to the smallest order.
	placements map[string]*series
	points     []point
	// known are precomputed answers between the points, mesh the tetrahedra for all others.
	known map[triple]StepTime
	mesh  *mesh
	cache map[cacheKey]StepTime
}

// StepTime is one optimizer step without accumulation, and the part of it in which gradients are exchanged.
type StepTime struct{ Step, Sync float64 }

// Pass returns the time of a further accumulated pass.
func (t StepTime) Pass() float64 { return t.Step - t.Sync }

// With is a whole step with accumulation.
func (t StepTime) With(accumulation int) float64 {
	return t.Step + t.Pass()*float64(accumulation)
}

// series are measurements over the local batch, ascending.
type series struct {
	batches []float64
	times   []StepTime
}

func (s *series) at(batch float64) StepTime {
	low, high, w := between(s.batches, batch)
	a, b := s.times[low], s.times[high]
	return StepTime{a.Step + (b.Step-a.Step)*w, a.Sync + (b.Sync-a.Sync)*w}
}

// between returns the two of ascending xs around x and the weight of the upper one; at the ends and beyond them, the
// end twice.
func between(xs []float64, x float64) (low, high int, weight float64) {
	at, exact := slices.BinarySearch(xs, x)
	switch {
	case exact:
		return at, at, 0
	case at == 0:
		return 0, 0, 0
	case at == len(xs):
		return at - 1, at - 1, 0
	}
	return at - 1, at, (x - xs[at-1]) / (xs[at] - xs[at-1])
}

type triple struct{ nodes, devices, batch int }

type cacheKey struct {
	shape string
	batch int
}

type point struct {
	nodes, devices, batch float64
	StepTime
}

// ParseStepTimes reads the placements and the scalability table of an application. Without the tables that
// Interpolate adds, the nearest measured placements answer for those that were not measured.
func ParseStepTimes(name string, placements, scalability []byte) (*StepTimes, error) {
	s := &StepTimes{placements: map[string]*series{}, cache: map[cacheKey]StepTime{}}
	all, err := rows.Parse(name+"/placements", placements, "placement", "local_bsz", "step_time", "sync_time")
	if err != nil {
		return nil, err
	}
	for _, row := range all {
		x, err := row.Numbers("local_bsz", "step_time", "sync_time")
		if err != nil {
			return nil, err
		}
		key := row.Text("placement")
		if s.placements[key] == nil {
			s.placements[key] = &series{}
		}
		s.placements[key].add(x[0], StepTime{x[1], x[2]})
	}
	for _, one := range s.placements {
		one.sort()
	}
	s.averagePlacements()
	return s, s.addScalability(name, scalability)
}

func (s *series) add(batch float64, t StepTime) {
	s.batches, s.times = append(s.batches, batch), append(s.times, t)
}

func (s *series) sort() {
	order := make([]int, len(s.batches))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(s.batches[i], s.batches[j]) })
	sorted := series{}
	for _, i := range order {
		sorted.add(s.batches[i], s.times[i])
	}
	*s = sorted
}

// averagePlacements makes a point of all placements with the same nodes, devices and batch.
func (s *StepTimes) averagePlacements() {
	type sum struct {
		StepTime
		count float64
	}
	sums := map[triple]sum{}
	for _, key := range sortedKeys(s.placements) {
		devices := 0
		for _, digit := range key {
			devices += int(digit - '0')
		}
		for i, batch := range s.placements[key].batches {
			at := triple{len(key), devices, int(batch)}
			x, t := sums[at], s.placements[key].times[i]
			sums[at] = sum{StepTime{x.Step + t.Step, x.Sync + t.Sync}, x.count + 1}
		}
	}
	for at, x := range sums {
		s.points = append(s.points, point{
			float64(at.nodes), float64(at.devices), float64(at.batch), StepTime{x.Step / x.count, x.Sync / x.count},
		})
	}
	slices.SortFunc(s.points, func(x, y point) int {
		return cmp.Or(cmp.Compare(x.nodes, y.nodes), cmp.Compare(x.devices, y.devices), cmp.Compare(x.batch, y.batch))
	})
}

func (s *StepTimes) addScalability(name string, scalability []byte) error {
	all, err := rows.Parse(name+"/scalability", scalability, "num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
	if err != nil {
		return err
	}
	for _, row := range all {
		x, err := row.Numbers("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
		if err != nil {
			return err
		}
		s.points = append(s.points, point{x[0], x[1], x[2], StepTime{x[3], x[4]}})
	}
	return nil
}

// Interpolate adds the points and tetrahedra of the published linear interpolation between the measurements, and the
// answers for this application in lookup, which has those of all applications.
func (s *StepTimes) Interpolate(name string, points, simplices, lookup []byte) error {
	m, err := parseMesh(name, points, simplices)
	if err != nil {
		return err
	}
	s.mesh = m
	all, err := rows.Parse("interpolated-lookup", lookup, "application", "num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
	if err != nil {
		return err
	}
	s.known = map[triple]StepTime{}
	for _, row := range all {
		if row.Text("application") != name {
			continue
		}
		x, err := row.Numbers("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
		if err != nil {
			return err
		}
		s.known[triple{int(x[0]), int(x[1]), int(x[2])}] = StepTime{x[3], x[4]}
	}
	return nil
}

// largestBatch is the largest local batch that was measured.
func (s *StepTimes) largestBatch() int {
	most := 0.0
	for _, p := range s.points {
		most = max(most, p.batch)
	}
	return int(most)
}

// mostNodes is the largest number of nodes that was measured.
const mostNodes = 16

// At returns the step time for a number of devices on each node, in the order of ranks, at a local batch.
func (s *StepTimes) At(shape []int, batch int) StepTime {
	key := cacheKey{smallestRotation(shape), batch}
	if t, ok := s.cache[key]; ok {
		return t
	}
	t := s.compute(key.shape, shape, batch)
	s.cache[key] = t
	return t
}

func (s *StepTimes) compute(key string, shape []int, batch int) StepTime {
	if one, ok := s.placements[key]; ok {
		return one.at(float64(batch))
	}
	devices := 0
	for _, n := range shape {
		devices += n
	}
	at := triple{min(len(shape), mostNodes), devices, batch}
	if t, ok := s.known[at]; ok {
		return t
	}
	where := [3]float64{float64(at.nodes), float64(at.devices), float64(at.batch)}
	if s.mesh != nil {
		if t, ok := s.mesh.at(where); ok {
			return t
		}
	}
	return s.nearest(where)
}

// smallestRotation writes a placement as one digit a node, rotated to the smallest order.
func smallestRotation(shape []int) string {
	digits := make([]byte, len(shape))
	for i, n := range shape {
		digits[i] = byte('0' + n)
	}
	best := string(digits)
	for i := 1; i < len(digits); i++ {
		if turned := string(digits[i:]) + string(digits[:i]); turned < best {
			best = turned
		}
	}
	return best
}
