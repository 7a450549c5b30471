package conduct

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// sizedWorld runs trials on one device or two; two are faster.
func sizedWorld(t *testing.T) *world {
	t.Helper()
	e := experiment(search.Random, file.PipeTune, 3)
	e.System = []contract.Factor{{Name: file.Devices, Values: []float64{1, 2}}}
	e.Job.MaxEpochs, e.Search.MaxEpochs = 30, 30
	w := newWorld(t, e)
	w.factor, w.restarts, w.restart = file.Devices, []string{file.Devices}, time.Second
	w.cost = func(_, devices float64) float64 { return 40 / devices }
	return w
}

// A trial is submitted with the first number of devices, gets the other one while it runs, and ends on the better one;
// the next trials begin there.
func TestDevicesAreTunedWhileATrialRuns(t *testing.T) {
	var reported [2]string
	for i, killed := range []bool{false, true} {
		w := sizedWorld(t)
		w.killed = killed
		w.run()
		for k, trial := range w.record.Trials {
			if spec := w.jobs[trial.Job].spec; spec.MinDevices != 1 || spec.MaxDevices != 1 || spec.Strategy != train.StrategyAllReduce {
				t.Errorf("trial %d is submitted with %d to %d devices, strategy %s", k, spec.MinDevices,
					spec.MaxDevices, spec.Strategy)
			}
			if first := trial.Settings[0][file.Devices]; first != float64(min(k+1, 2)) {
				t.Errorf("trial %d is to begin with %g devices", k, first)
			}
			if last := trial.Done[len(trial.Done)-1]; trial.State != search.Ended || last.Devices != 2 || last.Epoch != 30 {
				t.Errorf("trial %d is %s after %+v", k, trial.State, last)
			}
			for _, e := range trial.Done {
				if s, _, whole := settingOf(&trial, e, w.record.launched(&trial)); whole && s[file.Devices] != float64(e.Devices) {
					t.Errorf("epoch %+v counts for %v", e, s)
				}
			}
		}
		if w.restarted != 1 {
			t.Errorf("%d restarts, want that of the first trial", w.restarted)
		}
		if record := w.known.Records()[0]; len(record.Measured) != 2 || len(record.Failed) != 0 {
			t.Errorf("learnt %+v", record)
		}
		if changed := restartSeconds(&w.record.Trials[0]); len(changed) != 1 || changed[0] != 1 {
			t.Errorf("its price was %v s, want 1", changed)
		}
		data, err := json.Marshal(w.record.Trials)
		if err != nil {
			t.Fatal(err)
		}
		reported[i] = string(data)
	}
	if diff := cmp.Diff(reported[0], reported[1]); diff != "" {
		t.Errorf("(-alive +killed):\n%s", diff)
	}
}

// Devices that never become free are refused after a while: the trial continues as before, asks no more, and the
// refusal does not count against them for the next trial.
func TestDevicesThatAreNeverFree(t *testing.T) {
	w := sizedWorld(t)
	w.slots, w.latency = 1, 30*time.Second
	w.run()
	asked := map[int]int{}
	for k, trial := range w.record.Trials {
		if last := trial.Done[len(trial.Done)-1]; trial.State != search.Ended || last.Epoch != 30 || trial.Seconds() != 30*40 {
			t.Errorf("trial %d is %s after epoch %d and %g s", k, trial.State, last.Epoch, trial.Seconds())
		}
		if trial.Setting()[file.Devices] != 1 || len(trial.Settings) > 3 {
			t.Errorf("trial %d was to have %v", k, trial.Settings)
		}
		for _, a := range trial.Applied {
			if a.Refused[file.Devices] != "" {
				asked[k]++
			}
		}
	}
	if record := w.known.Records()[0]; len(asked) == 0 || w.restarted > 0 || len(record.Measured) != 1 || len(record.Failed) != 0 {
		t.Errorf("asked %v times, %d restarts, learnt %+v", asked, w.restarted, record)
	}
}

// An epoch counts for the devices that it ran on, or for none.
func TestEpochsCountForTheirDevices(t *testing.T) {
	one, two := contract.SettingValues{file.Devices: 1}, contract.SettingValues{file.Devices: 2}
	has := func(devices float64) train.Applied {
		return train.Applied{Attempt: 2, Generation: 2, Values: map[string]float64{file.Devices: devices}}
	}
	refused := train.Applied{Attempt: 2, Generation: 2, Refused: map[string]string{file.Devices: "not free"}}
	at := time.Unix(1000, 0)
	for name, test := range map[string]struct {
		applied train.Applied
		devices int
		want    contract.SettingValues
	}{
		"what was wanted":             {has(2), 2, two},
		"refused":                     {refused, 1, one},
		"refused, from two of three":  {refused, 3, contract.SettingValues{file.Devices: 3}},
		"other devices than reported": {has(2), 1, nil},
		"not there yet":               {train.Applied{Attempt: 2, Generation: 2, Restarts: []string{file.Devices}}, 1, nil},
		"devices not reported":        {has(2), 0, two},
	} {
		trial := contract.Trial{Settings: []contract.SettingValues{one, two}, Applied: []train.Applied{test.applied}}
		trial.Applied[0].At = at
		got, failed, whole := settingOf(&trial,
			contract.TrialEpoch{Attempt: 2, At: at.Add(10 * time.Second), Seconds: 10, Devices: test.devices}, one)
		if failed || whole != (test.want != nil) || whole && !got.Equal(test.want) {
			t.Errorf("%s: %v, failed %t, whole %t", name, got, failed, whole)
		}
	}
}

// A step has the same samples on any number of devices; numbers over which it cannot be split are not tried.
func TestAStepIsTheSameOnAllDevices(t *testing.T) {
	e := experiment(search.Random, file.PipeTune, 1)
	e.System = []contract.Factor{{Name: file.Devices, Values: []float64{2, 1, 4, 3}}, {Name: file.MicroBatch, Values: []float64{16}}}
	e.Space = append(e.Space, contract.Parameter{Name: "batch_size", Kind: search.LogInt, Low: 32, High: 1 << 20})
	r := New("exp", e, "", time.Now().UTC())
	if err := r.Decide(newWorld(t, e).known, r.SubmittedAt); err != nil {
		t.Fatal(err)
	}
	r.Trials[0].Params["batch_size"] = contract.Number(32)
	var tried []float64
	for _, s := range r.settings(&r.Trials[0], 32) {
		tried = append(tried, s[file.Devices])
	}
	if diff := cmp.Diff([]float64{2, 1, 4}, tried); diff != "" {
		t.Errorf("numbers of devices (-want +got):\n%s", diff)
	}
	for devices, want := range map[int]int{1: 64, 2: 32, 4: 16} {
		s := r.Settings()[0]
		micro, tuned := s.MicroBatch(devices)
		if got := s.BatchOn(devices, 32); got != want || !tuned || micro.MicroBatch*micro.Accumulation != want {
			t.Errorf("on %d devices each has %d samples, in passes %+v: want %d", devices, got, micro, want)
		}
	}
	other := e
	other.System = []contract.Factor{{Name: file.Devices, Values: []float64{1, 2}}, e.System[1]}
	if o := New("exp", other, "", time.Now().UTC()); o.workload(nil, 32) == r.workload(nil, 32) {
		t.Error("the same batch size on one device and on two is taken for one workload")
	}
	submitted := r.Submissions()[0].Body.(event.Submitted).Spec
	if submitted.BatchSize != 32 || submitted.MinDevices != 2 {
		t.Errorf("submitted with a batch of %d on %d devices", submitted.BatchSize, submitted.MinDevices)
	}
}
