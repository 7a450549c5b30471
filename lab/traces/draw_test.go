package traces

import (
	"math"
	"reflect"
	"slices"
	"testing"
)

func TestDrawnWorkloads(t *testing.T) {
	for _, gaps := range GapNames() {
		d := Draw{Jobs: 20000, Gaps: gaps, MeanGapSeconds: 60, Mix: "pollux", Seed: 1}
		w, err := d.Workload()
		if err != nil {
			t.Fatal(err)
		}
		again, _ := d.Workload()
		if !reflect.DeepEqual(w, again) {
			t.Errorf("%s: two draws of one seed differ", gaps)
		}
		d.Seed = 2
		if other, _ := d.Workload(); reflect.DeepEqual(w.Jobs, other.Jobs) {
			t.Errorf("%s: another seed makes no difference", gaps)
		}
		count := map[string]float64{}
		var between []float64
		before, single := 0.0, 0.0
		for _, j := range w.Jobs {
			between, before = append(between, j.Seconds-before), j.Seconds
			count[j.Application] += 1. / float64(d.Jobs)
			if j.Devices == 1 {
				single += 1. / float64(d.Jobs)
			}
			if j.Batch < j.Devices || j.Seconds < 0 {
				t.Fatalf("%s: %+v", gaps, j)
			}
		}
		slices.Sort(between)
		if mean := before / float64(d.Jobs); math.Abs(mean/60-1) > 0.15 {
			t.Errorf("%s: a mean gap of %.1f s, want 60", gaps, mean)
		}
		// How much shorter than the mean half of the gaps are tells the distributions apart.
		median := map[string]float64{"poisson": math.Ln2, "philly": math.Exp(-2), "bursts": 0.016}[gaps]
		if got := between[len(between)/2] / 60; math.Abs(got/median-1) > 0.1 {
			t.Errorf("%s: half of the gaps are below %.3f of the mean, want %.3f", gaps, got, median)
		}
		if small := count["cifar10"] + count["ncf"]; math.Abs(small-0.72) > 0.02 || math.Abs(count["imagenet"]-0.02) > 0.005 || single < 0.93 {
			t.Errorf("%s: mix %v, %.3f on one device", gaps, count, single)
		}
	}
}

func TestJobsThatShareAreDrawnAlike(t *testing.T) {
	w, err := Draw{Jobs: 5000, Gaps: "poisson", MeanGapSeconds: 60, Mix: "sharing", Seed: 1}.Workload()
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, j := range w.Jobs {
		count[j.Application]++
		if j.Devices != 1 {
			t.Fatalf("%+v", j)
		}
	}
	for name, n := range count {
		if len(count) != 5 || n < 850 || n > 1150 {
			t.Errorf("%d of %s, %d applications", n, name, len(count))
		}
	}
}

func TestDrawsThatAreNone(t *testing.T) {
	for _, d := range []Draw{
		{Jobs: 0, Gaps: "poisson", MeanGapSeconds: 1, Mix: "pollux"},
		{Jobs: 1, Gaps: "poisson", MeanGapSeconds: 1, Mix: "any"},
		{Jobs: 1, Gaps: "regular", MeanGapSeconds: 1, Mix: "pollux"},
		{Jobs: 1, Gaps: "poisson", Mix: "pollux"},
		{Jobs: 1, Gaps: "poisson", MeanGapSeconds: math.NaN(), Mix: "pollux"},
		{Jobs: 1, Gaps: "poisson", MeanGapSeconds: math.Inf(1), Mix: "pollux"},
	} {
		if w, err := d.Workload(); err == nil {
			t.Errorf("%+v gives %v", d, w)
		}
	}
}
