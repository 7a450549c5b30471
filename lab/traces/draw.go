package traces

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// Draw says what arrivals to draw at random. The same draw gives the same workload.
type Draw struct {
	Jobs int
	// Gaps is one of GapNames.
	Gaps           string
	MeanGapSeconds float64
	// Mix is one of MixNames. Applications of `sharing` have no profile: they are for live clusters, each job with
	// the batch of its file.
	Mix  string
	Seed uint64
}

// GapNames are the distributions of gaps between arrivals.
func GapNames() []string { return []string{"philly", "poisson", "bursts"} }

// MixNames are the mixes of applications.
func MixNames() []string { return []string{"pollux", "sharing"} }

// share is a value and its probability.
type share[T any] struct {
	value T
	part  float64
}

// pick draws a value. The last one has the rest if probabilities sum to less than 1.
func pick[T any](draw *rand.Rand, shares []share[T]) T {
	x := draw.Float64()
	for _, s := range shares {
		if x -= s.part; x < 0 {
			return s.value
		}
	}
	return shares[len(shares)-1].value
}

// applicationMix is the published mix of Pollux (OSDI'21, table 1): by how many device hours jobs take in Microsoft's
// cluster Philly, 72 % are small, 20 % medium, 6 % large and 2 % very large, each class standing for applications of
// that size.
func applicationMix() []share[string] {
	return []share[string]{
		{"cifar10", 0.36}, {"ncf", 0.36}, {"deepspeech2", 0.10}, {"bert", 0.10}, {"yolov3", 0.06}, {"imagenet", 0.02},
	}
}

// sharingMix are small models, equally likely; several of them fit on a GPU.
func sharingMix() []share[string] {
	return []share[string]{{"resnet50", 0.2}, {"vgg16", 0.2}, {"squeezenet", 0.2}, {"lstm", 0.2}, {"adgcl", 0.2}}
}

// deviceMix is the number of GPUs that the jobs of Philly ask for (Jeon et al., ATC'19): few ask for many.
func deviceMix() []share[int] {
	return []share[int]{{1, 0.93}, {2, 0.02}, {4, 0.025}, {8, 0.02}, {16, 0.005}}
}

// Workload draws the arrivals.
func (d Draw) Workload() (Workload, error) {
	if d.Jobs < 1 || !(d.MeanGapSeconds > 0 && d.MeanGapSeconds*float64(d.Jobs) < sim.Longest) {
		return Workload{}, fmt.Errorf("draw a workload: want a job or more, and a mean gap above 0 s at which they come within %d s", sim.Longest)
	}
	if !slices.Contains(MixNames(), d.Mix) {
		return Workload{}, fmt.Errorf("draw a workload: no mix %q, only %v", d.Mix, MixNames())
	}
	draw := rand.New(rand.NewPCG(d.Seed, 0))
	profiles := map[string]Profile{}
	for _, p := range Profiles() {
		profiles[p.Name] = p
	}
	w := Workload{Name: fmt.Sprintf("%s-%d", d.Gaps, d.Seed)}
	now := 0.0
	for i := range d.Jobs {
		gap, err := d.gap(draw)
		if err != nil {
			return Workload{}, err
		}
		now += gap
		at := math.Round(now*1000) / 1000
		if d.Mix == "sharing" {
			application := pick(draw, sharingMix())
			w.Jobs = append(w.Jobs, Arrival{Name: train.JobID(fmt.Sprintf("%s-%d", application, i)), Seconds: at, Application: application, Devices: 1, Batch: 1})
			continue
		}
		p := profiles[pick(draw, applicationMix())]
		devices := pick(draw, deviceMix())
		if p.OneDevice {
			devices = 1
		}
		w.Jobs = append(w.Jobs, Arrival{
			Name: train.JobID(fmt.Sprintf("%s-%d", p.Name, i)), Seconds: at, Application: p.Name,
			Devices: devices, Batch: min(p.Limits.BaseBatch*devices, p.Limits.MaxBatch),
		})
	}
	return w, nil
}

// gap draws the seconds until the next arrival.
func (d Draw) gap(draw *rand.Rand) (float64, error) {
	switch d.Gaps {
	case "poisson":
		return d.MeanGapSeconds * draw.ExpFloat64(), nil
	case "philly":
		// The spread of Philly's gaps: half of them are shorter than a seventh of the mean.
		const spread = 2
		return d.MeanGapSeconds * math.Exp(spread*draw.NormFloat64()-spread*spread/2), nil
	case "bursts":
		// One gap in eight is long; the others are a fiftieth of the mean.
		const long, short = 1. / 8, 1. / 50
		if draw.Float64() < long {
			return d.MeanGapSeconds * (1 - (1-long)*short) / long * draw.ExpFloat64(), nil
		}
		return d.MeanGapSeconds * short * draw.ExpFloat64(), nil
	}
	return 0, fmt.Errorf("draw a workload: no gaps %q, only %v", d.Gaps, GapNames())
}
