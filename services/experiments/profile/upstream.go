package profile

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/switchyard-dl/switchyard/libs/contract"
)

// Upstream is the k-means model that PipeTune ships, decoded into JSON: centres of raw event counts, without scales.
type Upstream struct {
	Names   []string    `json:"feature_names"`
	Centres [][]float64 `json:"cluster_centers"`
	Labels  []int       `json:"labels"`
}

// IsUpstream reports whether a text has the form of such a model.
func IsUpstream(data []byte) bool {
	var shape struct {
		Centres json.RawMessage `json:"cluster_centers"`
	}
	return json.Unmarshal(data, &shape) == nil && len(shape.Centres) > 0
}

// Named reports whether the features have names of their own, by which they can be compared with the nodes'
// measurements.
func (u Upstream) Named() bool { return !slices.Contains(u.Names, unnamed(0)) }

func unnamed(i int) string { return "event_" + strconv.Itoa(i) }

// DecodeUpstream decodes such a model. Unnamed features become event_0, event_1 and so on.
func DecodeUpstream(data []byte) (Upstream, error) {
	var u Upstream
	if err := json.Unmarshal(data, &u); err != nil {
		return u, fmt.Errorf("decode k-means model: %w", err)
	}
	if len(u.Centres) == 0 {
		return u, fmt.Errorf("decode k-means model: cluster_centers: want at least one")
	}
	if u.Names == nil {
		for i := range u.Centres[0] {
			u.Names = append(u.Names, unnamed(i))
		}
	}
	for i, c := range u.Centres {
		if len(c) != len(u.Names) {
			return u, fmt.Errorf("decode k-means model: centre %d has %d features: want %d", i, len(c), len(u.Names))
		}
	}
	for i, l := range u.Labels {
		if l < 0 || l >= len(u.Centres) {
			return u, fmt.Errorf("decode k-means model: label %d is %d: want less than %d", i, l, len(u.Centres))
		}
	}
	return u, nil
}

// Signature returns a centre as a signature.
func (u Upstream) Signature(centre int) contract.Signature {
	s := contract.Signature{}
	for i, name := range u.Names {
		s[name] = u.Centres[centre][i]
	}
	return s
}

// Model converts it into a Model. Scales come from the centres, each counted as often as it has members; a cluster of
// one member is an outlier and left out. The file lacks the widths of the clusters: each ends half-way to the nearest
// other.
func (u Upstream) Model() Model {
	members := make([]int, len(u.Centres))
	var each []contract.Signature
	for _, l := range u.Labels {
		members[l]++
	}
	for _, l := range u.Labels {
		if members[l] > 1 {
			each = append(each, u.Signature(l))
		}
	}
	m := Model{Features: newFeatures(each)}
	var centres [][]float64
	for i := range u.Centres {
		if members[i] > 1 {
			x := scaled(m.Features, u.Signature(i))
			centres = append(centres, x)
			m.Clusters = append(m.Clusters, contract.KindCluster{Centre: m.named(x), Members: members[i]})
		}
	}
	for i := range m.Clusters {
		half := math.Inf(1)
		for k, other := range centres {
			if k != i {
				half = min(half, distance(centres[i], other)/2)
			}
		}
		if math.IsInf(half, 1) {
			half = leastThreshold
		}
		m.Clusters[i].Threshold = half
	}
	return m
}
