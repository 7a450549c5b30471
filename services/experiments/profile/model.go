package profile

import (
	"fmt"
	"math"

	"github.com/switchyard-dl/switchyard/libs/contract"
)

// Model distinguishes kinds of workloads.
type Model contract.KindModel

const (
	// ownSpread is the number of members a cluster needs for its own threshold.
	ownSpread = 5
	// threshold is the border of a cluster, in deviations beyond the median distance of its members.
	threshold = 3
	// leastThreshold lets the same workload vary by half a deviation in each feature even if no two members differ.
	leastThreshold = 0.5
)

// Fit learns the kinds of workloads from signatures. The same signatures and seed give the same model.
func Fit(all []contract.Signature, seed uint64) Model {
	m := Model{Features: newFeatures(all)}
	if len(all) == 0 || len(m.Features) == 0 {
		return m
	}
	points := make([][]float64, len(all))
	for i, s := range all {
		points[i] = scaled(m.Features, s)
	}
	p := clusters(points, seed)
	members, every := make([][]float64, len(p.centres)), []float64{}
	for i, c := range p.of {
		if d := distance(points[i], p.centres[c]); !math.IsInf(d, 1) {
			members[c] = append(members[c], d)
			every = append(every, d)
		}
	}
	for c, centre := range p.centres {
		if len(members[c]) == 0 {
			continue
		}
		spread := members[c]
		if len(spread) < ownSpread {
			spread = every
		}
		m.Clusters = append(m.Clusters,
			contract.KindCluster{Centre: m.named(centre), Threshold: reach(spread), Members: len(members[c])})
	}
	return m
}

// reach returns the threshold that follows from the distances from a centre.
func reach(distances []float64) float64 {
	m := median(distances)
	off := make([]float64, len(distances))
	for i, d := range distances {
		off[i] = math.Abs(d - m)
	}
	return max(m+threshold*madToDeviation*median(off), leastThreshold)
}

func (m Model) named(centre []float64) map[string]float64 {
	named := map[string]float64{}
	for i, f := range m.Features {
		if !math.IsNaN(centre[i]) {
			named[f.Name] = centre[i]
		}
	}
	return named
}

func (m Model) placed(c contract.KindCluster) []float64 {
	x := make([]float64, len(m.Features))
	for i, f := range m.Features {
		v, ok := c.Centre[f.Name]
		if x[i] = v; !ok {
			x[i] = math.NaN()
		}
	}
	return x
}

// Classify returns the nearest cluster and the distance from it, in deviations; known reports whether that is within
// the cluster's threshold. If no cluster shares half of the features the distance is infinite.
func (m Model) Classify(s contract.Signature) (cluster int, away float64, known bool) {
	centres := make([][]float64, len(m.Clusters))
	for i, c := range m.Clusters {
		centres[i] = m.placed(c)
	}
	cluster, away = nearest(centres, scaled(m.Features, s))
	return cluster, away, !math.IsInf(away, 1) && away <= m.Clusters[cluster].Threshold
}

// Check returns an error if a decoded model is invalid.
func (m Model) Check() error {
	names := map[string]bool{}
	for _, f := range m.Features {
		if names[f.Name] {
			return fmt.Errorf("feature %q: want each name once", f.Name)
		}
		if !(f.Scale > 0) {
			return fmt.Errorf("feature %q: scale %g: want more than 0", f.Name, f.Scale)
		}
		names[f.Name] = true
	}
	for i, c := range m.Clusters {
		if !(c.Threshold >= 0) || c.Members < 0 {
			return fmt.Errorf("cluster %d: threshold %g, %d members: want 0 or more", i, c.Threshold, c.Members)
		}
		for name := range c.Centre {
			if !names[name] {
				return fmt.Errorf("cluster %d: %q is no feature of the model", i, name)
			}
		}
	}
	return nil
}
