package recurring

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/planner/recur"
)

// smallTrace is a job with three batch sizes on a GPU with two power limits: 32 needs 4 epochs, 48 needs 2, 56 never
// gets there.
func smallTrace() fstest.MapFS {
	train := "dataset,network,batch_size,optimizer,learning_rate,run,target_metric,target_epoch\n" +
		"squad,bert_base_uncased,32,adamw,1,1,84.0,4\nsquad,bert_base_uncased,48,adamw,1,1,84.0,2\n" +
		"squad,bert_base_uncased,56,adamw,1,1,84.0,\nsquad,bert_base_uncased,48,adamw,1,1,85.0,6\n" +
		"squad,bert_base_uncased,32,adam,1,1,84.0,1\n"
	power := "power_limit,dataset,network,batch_size,optimizer,time_per_epoch,average_power\n"
	for _, batch := range []string{"8", "32", "48", "56"} {
		power += "100,squad,bert_base_uncased," + batch + ",adamw,12,80\n200,squad,bert_base_uncased," + batch + ",adamw,10,190\n"
	}
	return fstest.MapFS{"summary_train.csv": {Data: []byte(train)}, "summary_power_toy.csv": {Data: []byte(power)}}
}

func loadSmall(t *testing.T) Training {
	t.Helper()
	all, err := Load(smallTrace(), "toy")
	if err != nil || len(all) != 1 {
		t.Fatalf("%d trainings, error %v", len(all), err)
	}
	return all[0]
}

func TestLoadJoinsRunsAndPower(t *testing.T) {
	tr := loadSmall(t)
	if tr.Default != 32 || len(tr.Batches) != 3 || tr.MaxPowerWatts != 200 || tr.Recurrences() != 12 {
		t.Fatalf("loaded %+v", tr)
	}
	b := tr.Batches[1]
	if b.Size != 48 || len(b.Epochs) != 1 || b.Epochs[0] != 2 || b.Limits[0] != (contract.PowerWindow{LimitWatts: 100, EnergyJoules: 960, Seconds: 12}) {
		t.Fatalf("batch size 48 is %+v", b)
	}
	if !math.IsInf(tr.Batches[2].Epochs[0], 1) {
		t.Fatal("a run that never reached its target is taken for one that did")
	}
	files := smallTrace()
	files["summary_train.csv"].Data = bytes.ReplaceAll(files["summary_train.csv"].Data, []byte("84.0,4"), []byte("84.0,nan"))
	if _, err := Load(files, "toy"); err == nil {
		t.Fatal("no run with the user's batch size reached the target, and nothing is said")
	}
}

func TestLoadSaysWhatIsWrong(t *testing.T) {
	for name, spoil := range map[string]func(string) string{
		"nonsense":     func(text string) string { return strings.Replace(text, ",10,190", ",ten,190", 1) },
		"not finite":   func(text string) string { return strings.Replace(text, ",10,190", ",Inf,190", 1) },
		"no column":    func(text string) string { return strings.Replace(text, "average_power", "power", 1) },
		"an empty one": func(string) string { return "" },
	} {
		files := smallTrace()
		files["summary_power_toy.csv"].Data = []byte(spoil(string(files["summary_power_toy.csv"].Data)))
		if _, err := Load(files, "toy"); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := Load(smallTrace(), "none"); err == nil {
		t.Error("a GPU that was not measured: no error")
	}
}

// scripted plays choices in turn, and the last one for ever.
type scripted struct{ choices []contract.GroupChoice }

func (s scripted) Name() string { return "scripted" }

func (s scripted) Next(g *recur.Group) contract.GroupChoice {
	return s.choices[min(len(g.Attempts), len(s.choices)-1)]
}

func TestWhatAttemptsSpend(t *testing.T) {
	tr := loadSmall(t)
	spent, err := replay(&tr, scripted{[]contract.GroupChoice{
		{BatchSize: 32, LimitWatts: 200},
		// Stopped before its third epoch, and charged to the same recurrence as the next attempt.
		{BatchSize: 56, LimitWatts: 200, MaxCost: 8000},
		{BatchSize: 48},
		{BatchSize: 48},
		{BatchSize: 32, LimitWatts: 200},
	}}, 0.5, 1)
	if err != nil {
		t.Fatal(err)
	}
	// An epoch costs 1950 at 200 W and 1680 at 100 W, so 100 W is chosen; profiling spends the mean of both in the
	// first epoch of a batch size.
	want := []expense{{4 * 1900, 40}, {4*1900 + (960+1900)/2 + 960, 40 + 11 + 12}, {2 * 960, 24}, {4 * 1900, 40}}
	for i, w := range want {
		if spent[i] != w {
			t.Errorf("recurrence %d spent %+v, want %+v", i, spent[i], w)
		}
	}
}

func TestDefaultIsTheMeasure(t *testing.T) {
	tr := loadSmall(t)
	row, err := Run(&tr, Default{}, 0.5, 3)
	if err != nil {
		t.Fatal(err)
	}
	f := row.Figures
	if f.EnergyRatio != 1 || f.TimeRatio != 1 || f.CostRatio != 1 || f.First20EnergyRatio != 1 || f.WorstTimeRatio != 1 || row.Interval.Regret > 1e-9 {
		t.Errorf("the default beside itself is %+v, +-%+v", f, row.Interval)
	}
	if want := 12 * (4*1950.0/(2*1680) - 1); math.Abs(f.Regret-want) > 1e-9 {
		t.Errorf("regret %g, want %g: 12 recurrences of 4 epochs of 1950 J beside 2 of 1680 J", f.Regret, want)
	}
}

func TestFailuresAreExpected(t *testing.T) {
	tr := loadSmall(t)
	tr.MaxEpochs = 6
	b := Batch{Size: 32, Epochs: []float64{2, 4, 7, math.Inf(1)}}
	if e := tr.expected(b, contract.PowerWindow{EnergyJoules: 10, Seconds: 1}); e != (expense{90, 9}) {
		t.Fatalf("two runs of 2 and 4 epochs beside two that give up after 6 are expected to take %+v, want 9 epochs", e)
	}
}

func TestAPolicyThatNeverGetsThereIsSaid(t *testing.T) {
	tr := loadSmall(t)
	if _, err := Run(&tr, scripted{[]contract.GroupChoice{{BatchSize: 56, LimitWatts: 100}}}, 0.5, 1); err == nil {
		t.Fatal("no error, and no end")
	}
}

func TestEveryEtaGivesNumbers(t *testing.T) {
	tr := loadSmall(t)
	for _, eta := range []float64{0, 0.5, 1} {
		var rows []Row
		for _, p := range Policies() {
			row, err := Run(&tr, p, eta, 2)
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, row)
		}
		if _, err := json.Marshal(map[string]any{"rows": rows, "aggregate": ByPolicy(rows)}); err != nil {
			t.Errorf("eta %g: %v", eta, err)
		}
	}
}

func TestProfiles(t *testing.T) {
	files := fstest.MapFS{"job+gpu0,1.csv": {Data: []byte("start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy\n1,__x_300,10,2000,2100\n2,__x_200,12,1000,1100\n")}}
	all, err := LoadProfiles(files)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d profiles, error %v", len(all), err)
	}
	// A second costs 600 J: 4100+6000 at 300 W, 2100+7200 at 200 W.
	if c := all[0].Choose(0.5); c.PowerLimit != 200 || c.Devices != 2 || c.TimeRatio != 1.2 {
		t.Errorf("chosen %+v, want 200 W", c)
	}
	if c := all[0].Choose(0); c.PowerLimit != 300 || c.EnergyRatio != 1 {
		t.Errorf("for time alone chosen %+v, want 300 W", c)
	}
	for name, text := range map[string]string{"no limit": "window_name,elapsed_time,gpu0_energy\nx,1,1\n", "no device": "window_name,elapsed_time\n_300,1\n"} {
		if _, err := LoadProfiles(fstest.MapFS{"a.csv": {Data: []byte(text)}}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
