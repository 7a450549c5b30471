package sharing

import (
	"math"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/curve"
)

var (
	fast = curve.Kind{Family: "fast", LocalBatch: 8}
	slow = curve.Kind{Family: "slow", LocalBatch: 8}
	huge = curve.Kind{Family: "slow", LocalBatch: 64}
)

// small is a GPU on which fast jobs do not feel each other, fast and slow do half and a quarter, and huge fits beside
// nobody.
func small() Table {
	return Table{
		Rates: map[curve.KindPair]float64{
			{Self: fast, Beside: fast}: 1, {Self: fast, Beside: slow}: 0.5, {Self: slow, Beside: fast}: 0.25, {Self: slow, Beside: slow}: 0.5,
			{Self: huge, Beside: fast}: 0, {Self: fast, Beside: huge}: 0, {Self: huge, Beside: slow}: 0, {Self: slow, Beside: huge}: 0, {Self: huge, Beside: huge}: 0,
		},
		Memory:           map[curve.Kind]float64{fast: 0.3, slow: 0.4, huge: 0.9},
		SamplesPerSecond: map[curve.Kind]float64{fast: 8, slow: 8, huge: 10},
	}
}

// script answers from a list and notes what is reported to it.
type script struct {
	answers  []int
	stay     bool
	reported []string
}

func (s *script) Choose(newcomer curve.Kind, running []curve.Kind) int {
	if len(s.answers) == 0 {
		return -1
	}
	answer := s.answers[0]
	s.answers = s.answers[1:]
	return answer
}

func (s *script) Watched(first, newcomer curve.Kind, _, _ float64) bool {
	s.reported = append(s.reported, "watched "+first.Family+" "+newcomer.Family)
	return s.stay
}

func (s *script) OutOfMemory(first, newcomer curve.Kind) {
	s.reported = append(s.reported, "killed "+newcomer.Family+" beside "+first.Family)
}

func TestRunByHand(t *testing.T) {
	for name, c := range map[string]struct {
		jobs     []Job
		policy   script
		want     Result
		reported string
	}{
		// The second waits for the first: 100 s and 190 s.
		"alone": {[]Job{{fast, 0, 100}, {fast, 10, 100}}, script{}, Result{AvgJCTSeconds: 145, MakespanSeconds: 200, MeanSlowdown: 1}, ""},
		// From 10 s on the fast one has a rate of a half and the slow one of a quarter: the fast one ends at
		// 10+90/0.5, when 45 s of the other's work are done.
		"together": {
			[]Job{{fast, 0, 100}, {slow, 10, 100}},
			script{answers: []int{0}, stay: true},
			Result{AvgJCTSeconds: (190 + 235) / 2., MakespanSeconds: 245, CoLocations: 1, MeanSlowdown: (1.9 + 2.35) / 2},
			"watched fast slow",
		},
		// After 60 s together, 70 s from the start, the newcomer leaves with 85 s and 60 s more to do. The other one
		// has 60 s left.
		"parted": {
			[]Job{{fast, 0, 100}, {slow, 10, 100}},
			script{answers: []int{0}},
			Result{AvgJCTSeconds: (130 + 265) / 2., MakespanSeconds: 275, CoLocations: 1, Evictions: 1, MeanSlowdown: (1.3 + 2.05) / 2},
			"watched fast slow",
		},
		// The newcomer is back at 70 s and is not asked about the same two jobs again: it starts at 100 s.
		"killed": {
			[]Job{{fast, 0, 100}, {huge, 10, 100}},
			script{answers: []int{0, 0}},
			Result{AvgJCTSeconds: (100 + 190) / 2., MakespanSeconds: 200, OutOfMemoryKills: 1, MeanSlowdown: 1},
			"killed slow beside fast",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Run(c.jobs, small(), 1, &c.policy)
			c.want.P99JCTSeconds = got.P99JCTSeconds
			near := func(x, y float64) bool { return math.Abs(x-y) < 1e-6 }
			if !near(got.AvgJCTSeconds, c.want.AvgJCTSeconds) || !near(got.MakespanSeconds, c.want.MakespanSeconds) ||
				!near(got.MeanSlowdown, c.want.MeanSlowdown) || got.CoLocations != c.want.CoLocations || got.Evictions != c.want.Evictions ||
				got.OutOfMemoryKills != c.want.OutOfMemoryKills {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if reported := strings.Join(c.policy.reported, ", "); reported != c.reported {
				t.Errorf("reported %q, want %q", reported, c.reported)
			}
		})
	}
}

// When two have shared for a minute and stay, no place has come free, and the job that waits is not asked again: the
// last job starts when the second has ended.
func TestWhatIsMeasuredGivesNoPlaces(t *testing.T) {
	policy := &script{answers: []int{0, -1, 0}, stay: true}
	got := Run([]Job{{fast, 0, 100}, {fast, 0, 100}, {slow, 10, 100}, {fast, 20, 10}}, small(), 2, policy)
	if got.CoLocations != 1 || math.Abs(got.AvgJCTSeconds-(190+100+235+90)/4.) > 1e-6 || !slices.Equal(policy.reported, []string{"watched fast slow"}) {
		t.Errorf("got %+v, reported %q", got, policy.reported)
	}
}

// Far from the stream's start the clock cannot tell small parts of a second; the run ends all the same.
func TestRunFarFromItsStart(t *testing.T) {
	got := Run([]Job{{fast, 1e13, 0.1}, {fast, 1e13, 1. / 3}}, small(), 1, exclusive{})
	if got.MakespanSeconds < 1e13 || got.AvgJCTSeconds > 11 {
		t.Errorf("got %+v", got)
	}
}

// spy counts the kills of each pair of kinds.
type spy struct {
	Policy
	kills map[curve.KindPair]int
}

func (s spy) OutOfMemory(first, newcomer curve.Kind) {
	s.kills[curve.KindPair{Self: first, Beside: newcomer}]++
	s.kills[curve.KindPair{Self: newcomer, Beside: first}]++
	s.Policy.OutOfMemory(first, newcomer)
}

// On any stream every job ends, none before it can, interference kills no pair of kinds twice, and none at all where
// memory is declared.
func TestEveryJobEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var jobs []Job
		now := 0.0
		for range rapid.IntRange(1, 25).Draw(t, "jobs") {
			now += rapid.Float64Range(0, 200).Draw(t, "gap")
			jobs = append(jobs, Job{rapid.SampledFrom([]curve.Kind{fast, slow, huge}).Draw(t, "kind"), now, rapid.Float64Range(1, 1000).Draw(t, "alone")})
		}
		devices := rapid.IntRange(1, 4).Draw(t, "devices")
		for _, name := range PolicyNames() {
			everyJobEnds(t, name, rapid.Bool().Draw(t, "declared"), devices, jobs)
		}
	})
}

func everyJobEnds(t rapid.TB, name string, declared bool, devices int, jobs []Job) {
	t.Helper()
	policy := spy{FindPolicy(name, small(), declared), map[curve.KindPair]int{}}
	got := Run(jobs, small(), devices, policy)
	last, work := jobs[len(jobs)-1].ArrivalSeconds, 0.0
	for _, j := range jobs {
		work += j.AloneSeconds / float64(len(jobs))
	}
	// A job may end too early by less than the precision of the clock, and sums of floating point have an error.
	early := 2*clockPrecision*got.MakespanSeconds + 1e-12*work
	if got.MakespanSeconds < last || got.MakespanSeconds > 1e7 || got.MeanSlowdown < 1-early || got.AvgJCTSeconds < work-early {
		t.Fatalf("%s: %+v of %v", name, got, jobs)
	}
	for pair, kills := range policy.kills {
		if pair.Self != pair.Beside && kills > 1 || kills > 2 || name != "interference" || declared {
			t.Fatalf("%s, memory declared %v: %d kills of %v", name, declared, kills, pair)
		}
	}
}

// A job ends when its work is done, and not a little before because another job ended then.
func TestJobsThatEndAlmostTogether(t *testing.T) {
	for _, apart := range []float64{1e-12, 1e-9, 5e-7, 1e-6} {
		for _, name := range PolicyNames() {
			everyJobEnds(t, name, true, 2, []Job{{fast, 0, 1}, {fast, 0, 1 + apart}})
			everyJobEnds(t, name, true, 2, []Job{{fast, 0, 1}, {slow, 1 - apart, 1 + 3*apart}, {fast, 1, 1}})
		}
	}
}

func TestTablesThatAreNone(t *testing.T) {
	good := map[string]string{
		"colocation-1gpu.csv": "gpu_type,model_a,batch_a,model_b,batch_b,isolated_a,isolated_b,colocated_a,colocated_b\nv100,a,8,a,8,4,4,2,2\n",
		"isolated.csv":        "gpu_type,model,batch,scale_factor,steps_per_s_sum\nv100,a,8,1,4\nv100,a,8,2,7\n",
		"declared_memory.csv": "gpu_type,model,batch,memory_fraction\nv100,a,8,0.4\n",
		"stream.csv":          "job,arrival_s,model,batch,solo_s\n0,5,a,8,100\n1,7.5,a,8,20\n",
	}
	files := func(name, from, to string) fstest.MapFS {
		fs := fstest.MapFS{}
		for file, text := range good {
			if file == name {
				text = strings.Replace(text, from, to, 1)
			}
			fs[file] = &fstest.MapFile{Data: []byte(text)}
		}
		return fs
	}
	load := func(fs fstest.MapFS, gpu string) (jobs []Job, err error) {
		table, err := LoadTable(fs, gpu)
		if err != nil {
			return nil, err
		}
		return table.LoadStream(fs, "stream.csv")
	}
	kind := curve.Kind{Family: "a", LocalBatch: 8}
	if jobs, err := load(files("", "", ""), "V100"); err != nil || !slices.Equal(jobs, []Job{{kind, 5, 100}, {kind, 7.5, 20}}) {
		t.Fatalf("jobs %v: %v", jobs, err)
	}
	for name, c := range map[string]struct{ file, from, to, gpu, says string }{
		"another GPU":              {"", "", "", "h100", `no pair on "h100"`},
		"a speed of nothing":       {"colocation-1gpu.csv", "4,4,2,2", "0,4,2,2", "v100", "a speed of 0"},
		"a speed that is none":     {"colocation-1gpu.csv", "4,4,2,2", "4,4,fast,2", "v100", "no number"},
		"no speed alone":           {"isolated.csv", "v100,a,8,1", "v100,a,16,1", "v100", "no speed of a with batch 8"},
		"a batch that is none":     {"declared_memory.csv", "a,8", "a,eight", "v100", "no number"},
		"a model without a name":   {"declared_memory.csv", "a,8", ",8", "v100", "no model"},
		"a job that was not timed": {"stream.csv", "5,a,8", "5,b,8", "v100", "b with batch 8 was not measured"},
		"jobs in disorder":         {"stream.csv", "0,5", "0,9", "v100", "ascending"},
		"a job of no work":         {"stream.csv", "a,8,100", "a,8,0", "v100", "above 0"},
		"a stream of nothing":      {"stream.csv", "0,5,a,8,100\n1,7.5,a,8,20\n", "", "v100", "no job"},
	} {
		if _, err := load(files(c.file, c.from, c.to), c.gpu); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want %q in it", name, err, c.says)
		}
	}
	if _, err := LoadTable(fstest.MapFS{}, "v100"); err == nil {
		t.Error("a folder without files is read")
	}
}
