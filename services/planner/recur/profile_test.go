package recur_test

import (
	"slices"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/recur"
)

// device is a job that runs at the limit that its profile wants, a whole second late.
type device struct {
	now     time.Time
	used    unit.Energy
	epochs  []train.EpochEnergy
	attempt train.Attempt
}

// watts and seconds of an epoch: below 200 W it gets slow.
func (d *device) epoch(limit float64) (joules, seconds float64) {
	seconds = 10
	if limit < 200 {
		seconds = 10 * 200 / limit
	}
	return limit * seconds, seconds
}

func (d *device) train(limit float64) {
	joules, seconds := d.epoch(limit)
	d.now = d.now.Add(time.Duration(seconds * float64(time.Second)))
	d.used += unit.Energy(joules) * unit.Joule
	d.epochs = append(d.epochs, train.EpochEnergy{Attempt: d.attempt.Number, EpochsDone: len(d.epochs) + 1, At: d.now, Energy: d.used})
}

func newDevice() *device {
	return &device{now: time.Unix(1000, 0), attempt: train.Attempt{Job: "j", Number: 1, Devices: []train.DeviceID{"gpu:0"}}}
}

func TestAProfileTriesEachLimitAndKeepsTheCheapest(t *testing.T) {
	limits := []float64{100, 125, 200, 250, 300}
	for _, c := range []struct{ eta, want float64 }{{0, 300}, {0.5, 200}, {1, 200}} {
		d, p := newDevice(), recur.Profile{}
		if !p.Follow(d.attempt, limits, d.now) || p.Watts != 300 {
			t.Fatalf("begins with %+v", p)
		}
		epochs := 0
		for ; !p.Settled && epochs < 100; epochs++ {
			d.train(p.Watts)
			if p.Learn(d.epochs, limits, c.eta, d.now.Add(time.Second)) {
				d.now = d.now.Add(time.Second) // of the next epoch, a part is at the old limit
			}
		}
		if p.Watts != c.want || len(p.Windows) != len(limits) {
			t.Errorf("eta %g: %+v, want %g W", c.eta, p, c.want)
		}
		for i, w := range p.Windows {
			joules, seconds := d.epoch(w.LimitWatts)
			if w.LimitWatts != limits[len(limits)-1-i] || w.EnergyJoules != joules || w.Seconds != seconds {
				t.Errorf("window %d is %+v", i, w)
			}
		}
		if p.Learn(d.epochs, limits, c.eta, d.now) || p.Follow(d.attempt, limits, d.now) {
			t.Error("changes after it has settled")
		}
	}
}

func TestAProfileGoesOnWithTheNextAttempt(t *testing.T) {
	limits := []float64{200, 300}
	d, p := newDevice(), recur.Profile{}
	p.Follow(d.attempt, limits, d.now)
	d.train(300)
	d.train(300)
	if !p.Learn(d.epochs, limits, 1, d.now) || p.Watts != 200 {
		t.Fatalf("%+v", p)
	}
	d.attempt.Number = 2
	if !p.Follow(d.attempt, limits, d.now) || p.Watts != 200 || len(p.Windows) != 1 {
		t.Fatalf("the second attempt: %+v", p)
	}
	d.train(200)
	if p.Learn(d.epochs, limits, 1, d.now) {
		t.Fatalf("an epoch of which only the end was seen counts: %+v", p)
	}
	d.attempt.Number, d.attempt.Devices = 3, []train.DeviceID{"gpu:0", "gpu:1"}
	if !p.Follow(d.attempt, limits, d.now) || p.Watts != 300 || len(p.Windows) != 0 || p.Devices != 2 {
		t.Fatalf("the third attempt has more devices: %+v", p)
	}
}

// TestWhatIsNoWholeEpochCountsForNothing leaves out epochs, ends them in one instant and begins them too early.
func TestWhatIsNoWholeEpochCountsForNothing(t *testing.T) {
	limits := []float64{200, 300}
	d := newDevice()
	begin := d.now
	d.train(300)
	d.train(300)
	at := func(change func([]train.EpochEnergy)) []train.EpochEnergy {
		epochs := slices.Clone(d.epochs)
		change(epochs)
		return epochs
	}
	for name, epochs := range map[string][]train.EpochEnergy{
		"none":               nil,
		"one":                d.epochs[:1],
		"one is missing":     at(func(e []train.EpochEnergy) { e[1].EpochsDone = 3 }),
		"no time in between": at(func(e []train.EpochEnergy) { e[1].At = e[0].At }),
		"begun too early":    at(func(e []train.EpochEnergy) { e[0].At = begin.Add(2 * time.Second) }),
		"of another attempt": at(func(e []train.EpochEnergy) { e[0].Attempt = 0 }),
	} {
		p := recur.Profile{}
		p.Follow(d.attempt, limits, begin)
		if p.Learn(epochs, limits, 1, d.now) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
