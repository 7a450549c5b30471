package train

import (
	"encoding/json"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestEpochsUntilFindsTheFirstCalmRun(t *testing.T) {
	c := Convergence{Hyperbola: Hyperbola{B0: 0.5, B1: 1, B2: 0.1}, Scale: 2}
	cases := []struct {
		name      string
		threshold float64
		patience  int
		limit     int
	}{
		{"one epoch", 0.05, 1, 100},
		{"three epochs", 0.05, 3, 100},
		{"long tail", 0.001, 10, 1000},
		{"limit first", 0.001, 10, 20},
		{"already flat", 10, 4, 100},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			want, calm := tc.limit, 0
			for k := 1; k <= tc.limit; k++ {
				if c.Loss(float64(k-1))-c.Loss(float64(k)) < tc.threshold {
					calm++
				}
				if calm == tc.patience {
					want = k
					break
				}
			}
			if got := c.EpochsUntil(tc.threshold, tc.patience, tc.limit); got.Expected != float64(want) {
				t.Errorf("converged after %v epochs, want %d", got.Expected, want)
			}
		})
	}
}

func TestEpochsUntilSpansLikelyCurves(t *testing.T) {
	slow, fast := Hyperbola{B0: 0.2, B1: 1}, Hyperbola{B0: 2, B1: 1, B2: 0.2}
	c := Convergence{Hyperbola: Hyperbola{B0: 0.5, B1: 1, B2: 0.1}, Scale: 1, Likely: []Hyperbola{slow, fast}}
	got := c.EpochsUntil(0.005, 2, 500)
	if !(got.Low < got.Expected && got.Expected < got.High) {
		t.Errorf("want low < expected < high, got %+v", got)
	}
	if c.EpochsUntil(0, 2, 500) != (Span{500, 500, 500}) {
		t.Error("without a threshold the job runs to its limit")
	}
}

func TestGain(t *testing.T) {
	cases := []struct {
		e     Efficiency
		batch int
		want  float64
	}{
		{Efficiency{Variance: 1, Square: 1, BaseBatch: 128}, 128, 1},
		{Efficiency{Variance: 1, Square: 0, BaseBatch: 128}, 512, 4},     // only noise: perfect averaging
		{Efficiency{Variance: 0, Square: 1, BaseBatch: 128}, 512, 1},     // no noise: no use
		{Efficiency{Variance: 3, Square: 1, BaseBatch: 100}, 300, 2},     // (3+1)/(3/3+1)
		{Efficiency{Variance: 3e300, Square: 1e300, BaseBatch: 1}, 3, 2}, // no overflow
		{Efficiency{BaseBatch: 128}, 512, 1},
		{Efficiency{Variance: 3, Square: 1}, 512, 1},
	}
	for _, tc := range cases {
		if got := tc.e.Gain(tc.batch); math.Abs(got-tc.want) > 1e-12 {
			t.Errorf("%+v at %d: gain %v, want %v", tc.e, tc.batch, got, tc.want)
		}
	}
}

func TestAllReduceStepSeconds(t *testing.T) {
	a := AllReduce{ComputeFixed: 1, ComputePerSample: 0.5, LocalBase: 2, LocalPerWorker: 0.5, CrossBase: 6, CrossPerWorker: 1, CrossPerPeer: 3, Overlap: 2}
	cases := []struct {
		cfg  Config
		want float64
	}{
		{Config{Workers: 1, Nodes: 1, LocalBatch: 4}, 3},
		{Config{Workers: 2, Nodes: 1, LocalBatch: 4}, math.Hypot(3, 2)},
		{Config{Workers: 4, Nodes: 1, LocalBatch: 4}, math.Hypot(3, 3)},
		{Config{Workers: 2, Nodes: 2, LocalBatch: 4}, math.Hypot(3, 6)},
		{Config{Workers: 4, Nodes: 2, LocalBatch: 4}, math.Hypot(3, 6+2+3)},
	}
	for _, tc := range cases {
		if got := a.StepSeconds(tc.cfg); math.Abs(got-tc.want) > 1e-12 {
			t.Errorf("%+v: %v s, want %v", tc.cfg, got, tc.want)
		}
	}
}

func TestServersAreOptimus(t *testing.T) {
	s := Servers{PerSample: 0.01, Fixed: 1, PerShare: 2, PerWorker: 0.1, PerServer: 0.2}
	cfg := Config{Workers: 4, Servers: 2, Nodes: 3, LocalBatch: 50}
	if got, want := s.StepSeconds(cfg, false), 0.5+1+4+0.4+0.4; math.Abs(got-want) > 1e-12 {
		t.Errorf("synchronous: %v s, want %v", got, want)
	}
	s.PerSample = 0
	if got, want := s.StepSeconds(cfg, true), (1+4+0.4+0.4)/4; math.Abs(got-want) > 1e-12 {
		t.Errorf("asynchronous: %v s, want %v", got, want)
	}
}

func TestMeasuredOverridesTheFit(t *testing.T) {
	cfg := Config{Workers: 2, Nodes: 1, LocalBatch: 32}
	s := Speed{
		Kind: SpeedAllReduce, AllReduce: AllReduce{ComputeFixed: 1, Overlap: 1}, TypicalBatch: 32,
		Measured: []Measured{{Config: cfg, StepSeconds: 5, Weight: 10}},
	}
	if got := s.StepSeconds(cfg); got != 5 {
		t.Errorf("measured configuration: %v s, want 5", got)
	}
	if got := s.StepSeconds(Config{Workers: 2, Nodes: 1}); got != 5 {
		t.Errorf("batch left out: %v s, want the measurement at the typical one", got)
	}
	if got := s.StepSeconds(Config{Workers: 1, Nodes: 1, LocalBatch: 32}); got != 1 {
		t.Errorf("other configuration: %v s, want the fit's 1", got)
	}
	if got := s.StepsPerSecond(cfg); got != 0.2 {
		t.Errorf("%v steps/s, want 0.2", got)
	}
	if (Speed{}).StepsPerSecond(cfg) != 0 || (Speed{}).StepSeconds(cfg) != 0 {
		t.Error("an unknown speed is zero")
	}
}

func TestRelativeErrorGrowsWithDistance(t *testing.T) {
	s := Speed{
		Kind: SpeedAllReduce, AllReduce: AllReduce{ComputeFixed: 1, Overlap: 1}, TypicalBatch: 32,
		Measured: []Measured{{Config: Config{Workers: 1, Nodes: 1, LocalBatch: 32}, StepSeconds: 5}},
	}
	last := 0.0
	for _, cfg := range []Config{
		{Workers: 1, Nodes: 1, LocalBatch: 32},
		{Workers: 1, Nodes: 1, LocalBatch: 64},
		{Workers: 2, Nodes: 1, LocalBatch: 32},
		{Workers: 4, Nodes: 1, LocalBatch: 32},
		{Workers: 16, Nodes: 4, LocalBatch: 32},
	} {
		got := s.RelativeError(cfg)
		if !(got > last && got <= 1) {
			t.Errorf("%+v: relative error %v, want above %v and at most 1", cfg, got, last)
		}
		last = got
	}
	if got := (Speed{}).RelativeError(Config{}); got != 1 {
		t.Errorf("nothing known: %v, want 1", got)
	}
}

func TestRemainingSeconds(t *testing.T) {
	steps := func(c Config) float64 { return 1000 / float64(c.Workers) }
	one, two := Config{Workers: 1, Nodes: 1, LocalBatch: 1}, Config{Workers: 2, Nodes: 1, LocalBatch: 1}
	m := Model{
		Speed: Speed{
			Kind: SpeedAllReduce, AllReduce: AllReduce{ComputeFixed: 0.1, LocalBase: 0.02, Overlap: 1}, TypicalBatch: 1,
			Measured: []Measured{{Config: one, StepSeconds: 0.1}},
		},
		EpochSeconds: 130, EpochConfig: one,
	}
	cases := []struct {
		name string
		cfg  Config
		done float64
		rule StopRule
		want float64
	}{
		{"observed epochs", one, 4, StopRule{MaxEpochs: 10}, 6 * 130},
		{"other configuration keeps the 30 s beside the steps", two, 4, StopRule{MaxEpochs: 10}, 6 * (30 + 500*0.12)},
		{"half an epoch", one, 9.5, StopRule{MaxEpochs: 10}, 65},
		{"past the end", one, 12, StopRule{MaxEpochs: 10}, 0},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := m.RemainingSeconds(tc.cfg, tc.done, tc.rule, steps)
			if !ok || math.Abs(got.Expected-tc.want) > 1e-9 || got.Low > got.Expected || got.High < got.Expected {
				t.Errorf("remaining %+v (known %v), want %v within its interval", got, ok, tc.want)
			}
		})
	}
	if _, ok := (Model{}).RemainingSeconds(one, 0, StopRule{MaxEpochs: 10}, steps); ok {
		t.Error("a model that has seen nothing predicts nothing")
	}
	if got := (Model{}).EpochsLeft(2, StopRule{MaxEpochs: 10, MinDecrease: 0.1}); got != (Span{8, 1, 8}) {
		t.Errorf("without a loss curve: %+v, want 8 with 1 to 8", got)
	}
}

// TestARunningJobHasNotConverged: by the curve the job should have stopped long ago, yet it runs.
func TestARunningJobHasNotConverged(t *testing.T) {
	m := Model{Convergence: &Convergence{Hyperbola: Hyperbola{B0: 1, B1: 1}, Scale: 1}}
	for _, tc := range []struct {
		done float64
		want Span
	}{{40, Span{3, 1, 5}}, {98, Span{2, 1, 2}}, {99.5, Span{0.5, 0.5, 0.5}}, {101, Span{}}} {
		if got := m.EpochsLeft(tc.done, StopRule{MaxEpochs: 100, MinDecrease: 0.1, Patience: 5}); got != tc.want {
			t.Errorf("after %v epochs: %+v left, want %+v", tc.done, got, tc.want)
		}
	}
}

// TestEpochsOfMoreSteps: an epoch had twice the steps that the batch implies; the extra time belongs to these steps.
func TestEpochsOfMoreSteps(t *testing.T) {
	steps := func(c Config) float64 { return 1000 / float64(c.Workers) }
	one, two := Config{Workers: 1, Nodes: 1, LocalBatch: 1}, Config{Workers: 2, Nodes: 1, LocalBatch: 1}
	m := Model{
		Speed: Speed{
			Kind: SpeedAllReduce, AllReduce: AllReduce{ComputeFixed: 0.1, LocalBase: 0.02, Overlap: 1}, TypicalBatch: 1,
			Measured: []Measured{{Config: one, StepSeconds: 0.1}},
		},
		EpochSeconds: 230, EpochConfig: one, EpochSteps: 2000,
	}
	if got, ok := m.EpochSecondsOn(two, steps); !ok || math.Abs(got-(30+1000*0.12)) > 1e-9 {
		t.Errorf("%v s on two workers, want 150", got)
	}
}

// TestTheIntervalNarrows: epochs that differ by half say little about a hundred to come, and much about the last fifty
// after as many.
func TestTheIntervalNarrows(t *testing.T) {
	on := Config{Workers: 1, Nodes: 1, LocalBatch: 1}
	for _, c := range []struct {
		seen, done    int
		least, widest float64
	}{{1, 1, 2, 3}, {50, 50, 1.1, 1.25}, {99, 99, 1.2, 1.4}} {
		m := Model{EpochSeconds: 230, EpochConfig: on, EpochsSeen: c.seen, EpochSpread: 0.5}
		got, ok := m.RemainingSeconds(on, float64(c.done), StopRule{MaxEpochs: 100}, func(Config) float64 { return 100 })
		if high, low := got.High/got.Expected, got.Expected/got.Low; !ok || high < c.least || high > c.widest || math.Abs(high-low) > 1e-9 {
			t.Errorf("after %d epochs: %+v, want an interval that is between %v and %v times as long", c.done, got, c.least, c.widest)
		}
	}
}

func TestMemoryBytes(t *testing.T) {
	m := Memory{FixedBytes: 1000, SampleBytes: 1.5}
	if got := m.Bytes(3); got != 1005 {
		t.Errorf("%d bytes, want 1005", got)
	}
	if got := (Memory{FixedBytes: math.MaxFloat64}).Bytes(1); got <= 0 {
		t.Errorf("%d bytes: overflow", got)
	}
}

func TestPredictionsAreOrderedAndModelsSurviveJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		coefficient := rapid.Float64Range(0, 5)
		curve := func() Hyperbola {
			return Hyperbola{coefficient.Draw(t, "b0"), coefficient.Draw(t, "b1"), coefficient.Draw(t, "b2")}
		}
		c := Convergence{Hyperbola: curve(), Scale: rapid.Float64Range(0.01, 100).Draw(t, "scale"), Likely: []Hyperbola{curve(), curve()}}
		limit := rapid.IntRange(0, 300).Draw(t, "limit")
		span := c.EpochsUntil(rapid.Float64Range(0, 1).Draw(t, "threshold"), rapid.IntRange(0, 20).Draw(t, "patience"), limit)
		if !(0 <= span.Low && span.Low <= span.Expected && span.Expected <= span.High && span.High <= float64(limit)) {
			t.Fatalf("span %+v out of order or beyond %d", span, limit)
		}
		for k := 1; k < 50; k++ {
			if c.Loss(float64(k)) > c.Loss(float64(k-1)) {
				t.Fatalf("loss rises at epoch %d", k)
			}
		}
		m := Model{Job: "a", Convergence: &c, Memory: &Memory{FixedBytes: 1}}
		body, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var back Model
		if err := json.Unmarshal(body, &back); err != nil {
			t.Fatal(err)
		}
		if again, _ := json.Marshal(back); string(again) != string(body) {
			t.Fatalf("json changed on the way: %s, then %s", body, again)
		}
	})
}

func TestNoiseScale(t *testing.T) {
	for _, c := range []struct {
		e     Efficiency
		want  float64
		known bool
	}{
		{Efficiency{Variance: 3, Square: 2, BaseBatch: 100}, 150, true},
		{Efficiency{Variance: 0, Square: 1, BaseBatch: 100}, 0, true},
		{Efficiency{Variance: 1, Square: 0, BaseBatch: 100}, MaxNoiseScale, true}, // noise alone
		{Efficiency{BaseBatch: 100}, 0, false},
		{Efficiency{Variance: 3, Square: 2}, 0, false},
	} {
		if got, known := c.e.Scale(); got != c.want || known != c.known {
			t.Errorf("%+v: %v samples, %v; want %v, %v", c.e, got, known, c.want, c.known)
		}
	}
}
