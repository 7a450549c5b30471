// Package nettrial plays failures of links against a probe matrix and counts how many the diagnosis names. It draws
// from a seed and reads no clock.
package nettrial

import (
	"math"
	"math/rand/v2"

	"github.com/switchyard-dl/switchyard/libs/fabric"
	"github.com/switchyard-dl/switchyard/services/profiler/diagnose"
)

// Network says what is probed, and how.
type Network struct {
	Matrix *fabric.Matrix
	// Probes are those over each row in a window; Flows are the source ports that they are spread over.
	Probes, Flows int
	// Background is the part of the packets that a healthy link loses.
	Background float64
}

// failure is what a link does to packets: it loses each with probability rate, and besides all packets of a random
// part of the flows.
type failure struct {
	rate  float64
	flows float64
}

// Window makes as many distinct links fail, each equally likely in one of three ways: in full, for a random half of
// the flows, or for packets at a rate log-uniform in 1..100 %. It returns which they are and what the probes of a
// window met.
func (n Network) Window(failures int, rnd *rand.Rand) (map[int32]bool, []diagnose.Count) {
	failed := map[int32]failure{}
	for len(failed) < min(failures, n.Matrix.Links()) {
		link := int32(rnd.IntN(n.Matrix.Links()))
		if _, twice := failed[link]; twice {
			continue
		}
		switch rnd.IntN(3) {
		case 0:
			failed[link] = failure{rate: 1}
		case 1:
			failed[link] = failure{flows: 0.5}
		default:
			failed[link] = failure{rate: math.Pow(10, 2*rnd.Float64()-2)}
		}
	}
	counts := n.healthy(rnd)
	names := map[int32]bool{}
	touched := map[int32]bool{}
	for link := range n.Matrix.Links() {
		if _, bad := failed[int32(link)]; !bad {
			continue
		}
		names[int32(link)] = true
		for _, r := range n.Matrix.Over(int32(link)) {
			if !touched[r] {
				touched[r] = true
				counts[r].Lost = n.lost(n.Matrix.Rows[r], failed, rnd)
			}
		}
	}
	return names, counts
}

// healthy draws the background loss, from one lost packet to the next.
func (n Network) healthy(rnd *rand.Rand) []diagnose.Count {
	counts := make([]diagnose.Count, len(n.Matrix.Rows))
	longest := 0
	for r, row := range n.Matrix.Rows {
		counts[r].Sent = n.Probes
		longest = max(longest, len(row))
	}
	if n.Background == 0 {
		return counts
	}
	packets := float64(len(counts) * n.Probes * longest)
	for at := n.gap(rnd) - 1; at < packets; at += n.gap(rnd) {
		hop, probe := int(at)%longest, int(at)/longest
		if r := probe / n.Probes; hop < len(n.Matrix.Rows[r]) {
			counts[r].Lost = min(counts[r].Lost+1, n.Probes)
		}
	}
	return counts
}

func (n Network) gap(rnd *rand.Rand) float64 {
	return 1 + math.Floor(math.Log1p(-rnd.Float64())/math.Log1p(-n.Background))
}

// lost draws how many probes a row with failed links loses.
func (n Network) lost(row []int32, failed map[int32]failure, rnd *rand.Rand) int {
	lost := 0
	for flow := range n.Flows {
		size := (n.Probes + flow) / n.Flows // their sum is Probes
		pass := 1.0
		for _, l := range row {
			f := failed[l]
			if rnd.Float64() < f.flows {
				pass = 0
			}
			pass *= (1 - f.rate) * (1 - n.Background)
		}
		for range size {
			if rnd.Float64() >= pass {
				lost++
			}
		}
	}
	return lost
}

// Tally adds up what came of windows.
type Tally struct {
	Failed, Right, Wrong int
}

// Judge compares the links that were named with those that failed.
func (t *Tally) Judge(failed map[int32]bool, named []diagnose.Suspect) {
	t.Failed += len(failed)
	for _, s := range named {
		if failed[s.Link] {
			t.Right++
		} else {
			t.Wrong++
		}
	}
}

// Accuracy is the part of the failed links that were named.
func (t Tally) Accuracy() float64 { return ratio(t.Right, t.Failed) }

// FalsePositives is the part of the named links that had not failed.
func (t Tally) FalsePositives() float64 { return ratio(t.Wrong, t.Right+t.Wrong) }

// FalseNegatives is the part of the failed links that were not named.
func (t Tally) FalseNegatives() float64 { return ratio(t.Failed-t.Right, t.Failed) }

func ratio(a, b int) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
