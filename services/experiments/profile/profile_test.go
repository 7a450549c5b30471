package profile

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/experiments/pipeline"
)

// kinds returns signatures of workloads of three kinds: 20 counters whose rates lie between 1 and 1e9 and differ from
// kind to kind, with 5 % noise.
func kinds(each int, r *rand.Rand) (all []contract.Signature, kind []int) {
	for i := range 3 * each {
		all, kind = append(all, signatureOf(i%3, r)), append(kind, i%3)
	}
	return all, kind
}

func signatureOf(kind int, r *rand.Rand) contract.Signature {
	s := contract.Signature{}
	for f := range 20 {
		size := math.Pow(10, float64(f%10))
		s[fmt.Sprintf("counter-%02d", f)] = size * (1 + float64((kind*7+f*f)%5)) * math.Exp(0.05*r.NormFloat64())
	}
	return s
}

func generator(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// sameParts reports whether clusters and kinds are the same partition.
func sameParts(t *testing.T, m Model, all []contract.Signature, kind []int) {
	t.Helper()
	of, back := map[int]int{}, map[int]int{}
	for i, s := range all {
		c, away, known := m.Classify(s)
		if !known {
			t.Errorf("signature %d of kind %d is of no kind: %.2f from cluster %d, which ends at %.2f", i, kind[i],
				away, c, m.Clusters[c].Threshold)
		}
		if k, ok := of[c]; ok && k != kind[i] {
			t.Errorf("cluster %d has kinds %d and %d", c, k, kind[i])
		}
		if k, ok := back[kind[i]]; ok && k != c {
			t.Errorf("kind %d is in the clusters %d and %d", kind[i], k, c)
		}
		of[c], back[kind[i]] = kind[i], c
	}
}

func TestKindsAreFound(t *testing.T) {
	all, kind := kinds(12, generator(1))
	m := Fit(all, 7)
	if len(m.Clusters) != 3 {
		t.Fatalf("%d clusters, want 3", len(m.Clusters))
	}
	sameParts(t, m, all, kind)
	fresh, _ := kinds(10, generator(2))
	within := 0
	for _, s := range fresh {
		if _, _, known := m.Classify(s); known {
			within++
		}
	}
	if within < 27 {
		t.Errorf("%d of 30 new signatures are recognised, want 27", within)
	}
	stranger := contract.Signature{}
	for name, rate := range fresh[0] {
		stranger[name] = rate * 3
	}
	if c, away, known := m.Classify(stranger); known {
		t.Errorf("a workload with three times the rates is taken for cluster %d, %.2f away", c, away)
	}
}

// One counter with a single wrong reading (4.9e16, as in the published measurements) forms no kind of its own, moves no
// scale, and does not widen what is accepted. Without scales it owns a cluster, and distances beside it vanish.
func TestABrokenCounterOwnsNothing(t *testing.T) {
	all, kind := kinds(12, generator(1))
	clean := Fit(all, 7)
	all[4]["counter-05"] = 4.9e16
	m := Fit(all, 7)
	if len(m.Clusters) != len(clean.Clusters) {
		t.Fatalf("%d clusters, want %d as without the broken counter", len(m.Clusters), len(clean.Clusters))
	}
	sameParts(t, m, all[5:], kind[5:])
	for i, c := range m.Clusters {
		if c.Members < 2 {
			t.Errorf("cluster %d has one member", i)
		}
		if c.Threshold > 2*clean.Clusters[i].Threshold {
			t.Errorf("cluster %d ends at %.2f, without the broken counter at %.2f", i, c.Threshold, clean.Clusters[i].Threshold)
		}
	}
	for i, f := range m.Features {
		if math.Abs(f.Scale/clean.Features[i].Scale-1) > 0.25 || math.Abs(f.Median-clean.Features[i].Median) > 0.25*f.Scale {
			t.Errorf("%s: %+v, without the broken counter %+v", f.Name, f, clean.Features[i])
		}
	}
	raw := make([][]float64, len(all))
	for i, s := range all {
		for _, f := range m.Features {
			raw[i] = append(raw[i], s[f.Name])
		}
	}
	unscaled, shared := kMeans(raw, 3, 7), -1
	for _, c := range unscaled.of {
		if c == unscaled.of[4] {
			shared++
		}
	}
	if shared != 0 {
		t.Errorf("without scales the broken counter shares its cluster with %d others: it does not show the fault", shared)
	}
}

func TestMachinesWithFewerCounters(t *testing.T) {
	all, kind := kinds(12, generator(1))
	for i, s := range all {
		if i%2 == 0 {
			for f := range 6 {
				delete(s, fmt.Sprintf("counter-%02d", f+i%5))
			}
		}
	}
	sameParts(t, Fit(all, 7), all, kind)
	if _, away, known := Fit(all, 7).Classify(contract.Signature{"gpu_utilisation": 0.5}); known || !math.IsInf(away, 1) {
		t.Errorf("a signature without a common counter is %.2f away", away)
	}
	if _, _, known := (Model{}).Classify(all[0]); known {
		t.Error("an empty model knows a signature")
	}
}

func TestNoStructureIsOneCluster(t *testing.T) {
	r := generator(3)
	var all []contract.Signature
	for range 40 {
		s := contract.Signature{}
		for f := range 20 {
			s[fmt.Sprint("c", f)] = math.Exp(10 + r.NormFloat64())
		}
		all = append(all, s)
	}
	if m := Fit(all, 1); len(m.Clusters) != 1 {
		t.Errorf("%d clusters of noise, want 1", len(m.Clusters))
	}
	if m := Fit([]contract.Signature{all[0]}, 1); len(m.Clusters) != 1 {
		t.Errorf("%d clusters of one signature, want 1", len(m.Clusters))
	}
	if m := Fit([]contract.Signature{all[0], all[0], all[0]}, 1); len(m.Clusters) != 1 {
		t.Errorf("%d clusters of the same signature thrice, want 1", len(m.Clusters))
	}
}

// The unit of a counter and the order of the signatures do not matter, and the seed is the only source of randomness.
func TestWhatDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		all, _ := kinds(6, generator(rapid.Uint64().Draw(t, "data")))
		m := Fit(all, seed)
		if !reflect.DeepEqual(m, Fit(all, seed)) {
			t.Fatal("the same signatures and seed gave two models")
		}
		unit := rapid.Float64Range(1, 1e6).Draw(t, "unit")
		other := make([]contract.Signature, len(all))
		for i, s := range all {
			other[i] = maps.Clone(s)
			other[i]["counter-09"] *= unit
		}
		n := Fit(other, seed)
		for i := range all {
			c, away, _ := m.Classify(all[i])
			d, off, _ := n.Classify(other[i])
			if c != d || math.Abs(away-off) > 1e-6 {
				t.Fatalf("signature %d: cluster %d at %g, in another unit %d at %g", i, c, away, d, off)
			}
		}
	})
}

func run(workload string, batch float64, costs ...float64) *pipeline.Trial {
	t := &pipeline.Trial{Workload: workload, BatchSize: batch}
	for i, c := range costs {
		s := contract.SettingValues{pipeline.Cores: []float64{16, 8, 4}[i]}
		t.Settings = append(t.Settings, s)
		t.Ended = append(t.Ended, pipeline.Epoch{Setting: s, Cost: c})
	}
	return t
}

func TestStoreKeepsWhatItLearntThroughEveryModel(t *testing.T) {
	r := generator(4)
	s := Store{Seed: 7}
	for i := range 30 {
		kind := i % 3
		// Kind 0 is fastest on 16 cores, kind 1 on 8 and kind 2 on 4; workloads differ in length.
		costs := [][]float64{{1, 1.2, 1.4}, {1, 0.8, 0.9}, {1, 0.7, 0.5}}[kind]
		length := 10 * float64(1+i)
		s = s.Learn(run(fmt.Sprint("w", i), 32, length*costs[0], length*costs[1], length*costs[2]), signatureOf(kind, r))
	}
	if len(s.Entries) != 30 || len(s.Model.Clusters) != 3 {
		t.Fatalf("%d entries in %d clusters, want 30 in 3", len(s.Entries), len(s.Model.Clusters))
	}
	best := map[string]float64{}
	for _, truth := range s.Truths() {
		best[truth.Kind] = truth.Setting[pipeline.Cores]
		if truth.Workloads < 9 || truth.BatchSize != 32 {
			t.Errorf("%+v: want about 10 workloads at batch size 32", truth)
		}
	}
	for kind, cores := range []float64{16, 8, 4} {
		name := s.Kind(signatureOf(kind, r))
		if best[name] != cores {
			t.Errorf("kind %d (%q) is best on %g cores, want %g", kind, name, best[name], cores)
		}
	}
	again := s.Learn(run("w3", 32, 40, 48, 56), nil)
	if len(again.Entries) != 30 || again.Entries[29].Workload != "w3" || len(again.Entries[29].Signature) == 0 {
		t.Errorf("the workload that recurred: %+v", again.Entries[29])
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := Decode(data); err != nil || !reflect.DeepEqual(back, s) {
		t.Errorf("read back (%v) it is another store", err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, text := range []string{
		`{`, `{}`, `{"name":"digits","mode":"v1"}`, `{"seed":0,"model":{}}`, `{"seed":0,"model":{},"fitted":0}x`, `{"fitted":0,"model":{},"entries":[{"workload":"a"},{"workload":"a"}]}`, `{"fitted":0,"model":{},"entries":[{"workload":"a","default":{"cores":2},"measured":[{"setting":{"cores":1},"cost":0,"epochs":1}]}]}`,
		`{"fitted":0,"model":{},"entries":[{"workload":"a","default":{"cores":2},"measured":[{"setting":{},"cost":1,"epochs":1}]}]}`, `{"fitted":0,"model":{"features":[{"name":"a","scale":0}]}}`,
		`{"fitted":0,"model":{"features":[{"name":"a","scale":1},{"name":"a","scale":1}]}}`, `{"fitted":0,"model":{"clusters":[{"centre":{"a":1},"threshold":1}]}}`,
	} {
		if _, err := Decode([]byte(text)); err == nil {
			t.Errorf("%s was read", text)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"seed":1,"fitted":1,"entries":[{"workload":"a","default":{"cores":2},"measured":[{"setting":{"cores":1},"cost":1,"epochs":1}],"signature":{"x":1}}],
"model":{"features":[{"name":"x","median":1,"scale":1}],"clusters":[{"centre":{"x":0},"threshold":1,"members":1}]}}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		if s, err := Decode(data); err == nil {
			s.Truths()
			s.Learn(run("new", 32, 3, 2, 1), contract.Signature{"x": 2, "y": 3})
		}
	})
}

func FuzzDecodeUpstream(f *testing.F) {
	f.Add([]byte(`{"feature_names":null,"cluster_centers":[[1,2],[3,4]],"labels":[0,0,1,1]}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		if u, err := DecodeUpstream(data); err == nil {
			u.Model()
		}
	})
}

// The model that PipeTune ships has three centres. One is a single broken reading.
func TestUpstreamModel(t *testing.T) {
	root := os.Getenv("SWITCHYARD_DATA")
	if root == "" {
		t.Skip("SWITCHYARD_DATA names no folder with the published measurements")
	}
	data, err := os.ReadFile(filepath.Join(root, "pipetune", "derived", "kmeans_model_decoded.json"))
	if err != nil {
		t.Fatal(err)
	}
	u, err := DecodeUpstream(data)
	if err != nil {
		t.Fatal(err)
	}
	m := u.Model()
	if len(m.Features) != 58 || len(m.Clusters) != 2 || m.Clusters[0].Members != 776 || m.Clusters[1].Members != 486 {
		t.Fatalf("%d features, clusters %+v: want 58, and the clusters of 776 and 486", len(m.Features), m.Clusters)
	}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
	for i, centre := range []int{0, 2} {
		if c, away, known := m.Classify(u.Signature(centre)); c != i || away > 1e-9 || !known {
			t.Errorf("centre %d is %.2f from cluster %d", centre, away, c)
		}
	}
	// Their distances are unscaled: with the square root of the published inertia, a whole cluster's, as the limit,
	// every kind of workload is near.
	raw := 0.0
	for f := range u.Names {
		apart := u.Centres[0][f] - u.Centres[2][f]
		raw += apart * apart
	}
	if inertia := 4.388980884951271e+20; raw > inertia {
		t.Errorf("the two kinds are %g apart, beyond the inertia %g: it does not show the fault", math.Sqrt(raw),
			math.Sqrt(inertia))
	}
	if !IsUpstream(data) || u.Named() {
		t.Errorf("the published model is not known as one, or has names")
	}
	// Its clusters are kinds, before those of the store's own model.
	for i := range u.Names {
		u.Names[i] = fmt.Sprintf("event of column %d", i)
	}
	s := Store{Given: contract.KindModel(u.Model())}
	if kind := s.Kind(u.Signature(2)); kind != "given-1" || !u.Named() {
		t.Errorf("the centre of a given cluster is of kind %q", kind)
	}
	if kind := s.Kind(contract.Signature{"busy_cores": 1}); kind != "" {
		t.Errorf("what shares no feature is of kind %q", kind)
	}
	written, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Decode(written); err != nil || IsUpstream(written) || cmp.Diff(s.Given, again.Given) != "" {
		t.Errorf("an exported store is read as another: %v", err)
	}
	between := contract.Signature{}
	for name, rate := range u.Signature(0) {
		between[name] = 30 * rate
	}
	if _, away, known := m.Classify(between); known {
		t.Errorf("thirty times the rates of a kind is taken for one, %.2f away", away)
	}
}

// Costs in seconds and in joules are never averaged.
func TestTruthsKeepUnitsApart(t *testing.T) {
	var s Store
	for i, unit := range []string{"s", "J"} {
		trial := run(fmt.Sprint("w", i), 32, 10*math.Pow(100, float64(i)), 5, 4)
		trial.Unit = unit
		s = s.Learn(trial, contract.Signature{"x": 2, "y": 3})
	}
	truths := s.Truths()
	if len(truths) != 2 || truths[0].Unit != "s" || truths[0].Cost != 4 || truths[1].Unit != "J" || truths[1].Workloads != 1 {
		t.Errorf("truths %+v", truths)
	}
}

func TestHeard(t *testing.T) {
	var s Store
	for i := range mostTrainings + 1 {
		s = s.WithPosition(contract.LearntUpTo{Training: fmt.Sprint("t", i), Attempt: 1, Epoch: 1})
	}
	s = s.WithPosition(contract.LearntUpTo{Training: "t1", Attempt: 2, Epoch: 3})
	if h, noted := s.PositionOf("t1"); !noted || h.Attempt != 2 || len(s.Heard) != mostTrainings {
		t.Errorf("heard %+v of %d", h, len(s.Heard))
	}
	if _, noted := s.PositionOf("t0"); noted {
		t.Error("the oldest is still noted")
	}
}
