package profile

import (
	"math"
	"math/rand/v2"
	"slices"
)

// partition is a clustering of points: the centre of each point.
type partition struct {
	centres [][]float64
	of      []int
	cost    float64 // sum of the squared distances
}

const (
	mostClusters = 10
	restarts     = 5
	mostRounds   = 50
	// structure is the least silhouette that indicates clusters at all (Kaufman and Rousseeuw, "Finding Groups in
	// Data", 1990, table 4).
	structure = 0.25
)

// clusters divides points into the number of clusters with the greatest mean silhouette, or one if the points show no
// structure.
func clusters(points [][]float64, seed uint64) partition {
	apart := distances(points)
	best, most := kMeans(points, 1, seed), structure
	for k := 2; k <= min(mostClusters, len(points)-1); k++ {
		p := kMeans(points, k, seed)
		if s := silhouette(apart, p); s > most {
			best, most = p, s
		}
	}
	return best
}

// kMeans is Lloyd's algorithm from the seeds of k-means++ (Arthur and Vassilvitskii, 2007), the best of several starts.
func kMeans(points [][]float64, k int, seed uint64) partition {
	best := partition{cost: math.Inf(1)}
	for start := range restarts {
		r := rand.New(rand.NewPCG(seed, uint64(start)))
		p := partition{centres: seeds(points, k, r)}
		for range mostRounds {
			before := p.of
			p.assign(points)
			if slices.Equal(before, p.of) {
				break
			}
			p.move(points)
		}
		if p.cost < best.cost || best.of == nil {
			best = p
		}
	}
	return best
}

// seeds draws the first centre uniformly, each other with a probability proportional to the square of its distance from
// those before.
func seeds(points [][]float64, k int, r *rand.Rand) [][]float64 {
	centres := [][]float64{points[r.IntN(len(points))]}
	for len(centres) < k {
		weights, sum := make([]float64, len(points)), 0.0
		for i, x := range points {
			_, d := nearest(centres, x)
			weights[i] = min(d*d, 4*farthest*farthest)
			sum += weights[i]
		}
		left, next := r.Float64()*sum, 0
		for i, w := range weights {
			if left -= w; w > 0 {
				next = i
				if left < 0 {
					break
				}
			}
		}
		centres = append(centres, points[next])
	}
	return centres
}

func (p *partition) assign(points [][]float64) {
	p.of, p.cost = make([]int, len(points)), 0
	for i, x := range points {
		c, d := nearest(p.centres, x)
		p.of[i] = c
		p.cost += d * d
	}
}

// move puts each centre into the middle of its points, feature by feature over the points that have it. A centre
// without points stays.
func (p *partition) move(points [][]float64) {
	for c, old := range p.centres {
		sum, count := make([]float64, len(old)), make([]float64, len(old))
		for i, x := range points {
			for f, v := range x {
				if p.of[i] == c && !math.IsNaN(v) {
					sum[f] += v
					count[f]++
				}
			}
		}
		if !slices.Contains(p.of, c) {
			continue
		}
		middle := make([]float64, len(old))
		for f := range middle {
			middle[f] = sum[f] / count[f] // NaN if no point has it
		}
		p.centres[c] = middle
	}
}

// nearest returns the nearest centre with its distance, the first one if all are infinitely far.
func nearest(centres [][]float64, x []float64) (centre int, d float64) {
	d = math.Inf(1)
	for c, y := range centres {
		if away := distance(x, y); away < d {
			centre, d = c, away
		}
	}
	return centre, d
}

func distances(points [][]float64) [][]float64 {
	apart := make([][]float64, len(points))
	for i, x := range points {
		apart[i] = make([]float64, len(points))
		for j, y := range points[:i] {
			apart[i][j] = min(distance(x, y), 2*farthest)
			apart[j][i] = apart[i][j]
		}
	}
	return apart
}

// silhouette returns the mean over all points of (b-a)/max(a,b), where a is the mean distance to the others of the
// point's cluster and b that to those of the nearest other cluster (Rousseeuw, 1987). A point alone in its cluster
// counts 0, so that an outlier gains nothing from its own cluster.
func silhouette(apart [][]float64, p partition) float64 {
	size := make([]int, len(p.centres))
	for _, c := range p.of {
		size[c]++
	}
	total := 0.0
	for i, own := range p.of {
		if size[own] < 2 {
			continue
		}
		sum := make([]float64, len(p.centres))
		for j, c := range p.of {
			sum[c] += apart[i][j]
		}
		a, b := sum[own]/float64(size[own]-1), math.Inf(1)
		for c, s := range sum {
			if c != own && size[c] > 0 {
				b = min(b, s/float64(size[c]))
			}
		}
		if most := max(a, b); most > 0 && !math.IsInf(b, 1) {
			total += (b - a) / most
		}
	}
	return total / float64(len(p.of))
}
