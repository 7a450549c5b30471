package conduct

import (
	"slices"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
	"github.com/switchyard-dl/switchyard/services/experiments/profile"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// A setting that kills the processes of a trial is left at once, and neither this trial nor another one gets it again.
func TestASettingThatKillsIsRuledOut(t *testing.T) {
	for name, restarts := range map[string][]string{"live": nil, "by another start": {file.Cores}} {
		for _, killed := range []bool{false, true} {
			w := newWorld(t, experiment(search.Random, file.PipeTune, 4))
			w.killed, w.restarts, w.busy, w.cost = killed, restarts, 0.1, func(_, cores float64) float64 { return 10 + 5*cores }
			w.fatal = func(cores float64) bool { return cores == 1 }
			w.run()
			if w.lost != 1 {
				t.Errorf("%s, killed %t: %d attempts were lost, want 1", name, killed, w.lost)
			}
			for _, trial := range w.record.Trials {
				if trial.State != search.Ended || trial.EpochsDone() != 9 || trial.Setting()[file.Cores] != 2 {
					t.Errorf("%s, killed %t: trial %d %s after %d epochs with %v", name, killed, trial.ID, trial.State,
						trial.EpochsDone(), trial.Settings)
				}
			}
			if known := w.known.Records(); len(known) != 1 || len(known[0].Failed) != 1 || known[0].Failed[0][file.Cores] != 1 {
				t.Errorf("%s, killed %t: learnt %+v", name, killed, known)
			}
		}
	}
}

// A trial's failure at a setting warns the next trial; a concurrent one is warned at once.
func TestFailuresAreLearntAtOnce(t *testing.T) {
	r := newWorld(t, experiment(search.Random, file.PipeTune, 2)).record
	r.Trials = []contract.Trial{{
		Job: "exp-t0", Epochs: 9, State: search.Running, SettingAfter: 1, Settings: []contract.SettingValues{{file.Cores: 2}, {file.Cores: 1}},
		Done: []contract.TrialEpoch{{Epoch: 1, Attempt: 1, Seconds: 10, At: r.SubmittedAt.Add(10 * time.Second)}},
	}}
	r.AttemptLost("exp-t0", 2, train.Exit{Code: 137}, false)
	known := r.Learn(profile.Store{})
	if all := known.Records(); len(all) != 1 || len(all[0].Measured) != 0 || len(all[0].Failed) != 1 {
		t.Fatalf("learnt %+v", all)
	}
	if again := r.Learn(profile.Store{}); len(again.Entries) != 0 {
		t.Errorf("learnt again: %+v", again)
	}
	r.JobEnded("exp-t0", train.StateFailed, "killed", r.SubmittedAt.Add(time.Minute))
	if all := r.Learn(known).Records(); len(all) != 1 || len(all[0].Failed) != 1 {
		t.Errorf("in the end %+v", all)
	}
}

// A setting is blamed for the end of an attempt only if nothing else can be the cause.
func TestWhatASettingIsBlamedFor(t *testing.T) {
	began := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	applied := func(attempt, seconds int, generation uint64, cores float64) train.Applied {
		return train.Applied{Job: "exp-t0", Attempt: attempt, Generation: generation, Values: map[string]float64{file.Cores: cores}, At: at(seconds)}
	}
	waits := train.Applied{Job: "exp-t0", Attempt: 2, Generation: 2, Restarts: []string{file.Cores}, At: at(12)}
	first, killed := applied(1, 0, 1, 2), train.Exit{Signal: "SIGKILL"}
	for _, test := range []struct {
		name     string
		reported []train.Applied
		epochs   []event.EpochEnded
		exit     train.Exit
		blamed   bool
	}{
		{"it was set and killed", []train.Applied{first, applied(2, 12, 2, 1)}, nil, killed, true},
		{"it ended with a status", []train.Applied{first, applied(2, 12, 2, 1)}, nil, train.Exit{Code: 1}, true},
		{"nothing was reported of the attempt", []train.Applied{first}, nil, killed, true},
		{"it vanished", []train.Applied{first, applied(2, 12, 2, 1)}, nil, train.Exit{Lost: true}, false},
		{"it was ended from outside", []train.Applied{first, applied(2, 12, 2, 1)}, nil, train.Exit{Forced: true, Signal: "SIGTERM"}, false},
		{"the program reported a failure", []train.Applied{first, applied(2, 12, 2, 1)}, nil, train.Exit{}, false},
		{"it had trained with it", []train.Applied{first, applied(2, 12, 2, 1)}, []event.EpochEnded{{Attempt: 2, EpochsDone: 2, EpochSeconds: 8}}, killed, false},
		{"it had trained, and nothing was reported yet", []train.Applied{first}, []event.EpochEnded{{Attempt: 2, EpochsDone: 2, EpochSeconds: 8}}, killed, false},
		{"it still had the first one", []train.Applied{first, applied(2, 12, 1, 2)}, nil, killed, false},
		{"it waited to be started with it", []train.Applied{first, waits}, nil, killed, false},
	} {
		r := New("exp", experiment(search.Random, file.PipeTune, 1), "", began)
		r.Trials = []contract.Trial{{Job: "exp-t0", Epochs: 9, State: search.Running, Settings: []contract.SettingValues{{file.Cores: 2}, {file.Cores: 1}}}}
		for _, a := range test.reported {
			r.Retuned(a)
		}
		r.EpochEnded("exp-t0", event.EpochEnded{Attempt: 1, EpochsDone: 1, EpochSeconds: 10}, at(10))
		for _, e := range test.epochs {
			r.EpochEnded("exp-t0", e, at(20))
		}
		r.AttemptLost("exp-t0", 2, test.exit, false)
		if got := len(r.Trials[0].Failed) > 0; got != test.blamed {
			t.Errorf("%s: blamed %t, want %t", test.name, got, test.blamed)
		}
	}
}

// Failures that a setting cannot have caused, and values never applied, do not count against it: device memory depends
// only on the passes and the devices.
func TestWhatASettingCannotHaveDone(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	of := func(cores, micro, devices float64) contract.SettingValues {
		return contract.SettingValues{file.Cores: cores, file.MicroBatch: micro, file.Devices: devices}
	}
	noMemory, crashed := train.Exit{Code: 1, LogTail: "RuntimeError: CUDA out of memory."}, train.Exit{Code: 1}
	for _, test := range []struct {
		name              string
		setting           contract.SettingValues
		refused           []string
		exit              train.Exit
		sharing, enlarged bool
		blamed            bool
	}{
		{"fewer cores, no memory on its own device", of(1, 16, 1), nil, noMemory, false, false, true},
		{"fewer cores, no memory beside another", of(1, 16, 1), nil, noMemory, true, false, false},
		{"fewer cores, a crash beside another", of(1, 16, 1), nil, crashed, true, false, true},
		{"larger passes, no memory beside another", of(2, 32, 1), nil, noMemory, true, false, true},
		{"other devices, no memory beside another", of(2, 16, 2), nil, noMemory, true, false, true},
		{"passes that have trained, no memory beside another", of(1, 8, 1), nil, noMemory, true, false, false},
		{"larger steps were asked, no memory", of(1, 16, 1), nil, noMemory, false, true, false},
		{"larger steps were asked, a crash", of(1, 16, 1), nil, crashed, false, true, true},
		{"devices that were refused", of(2, 16, 2), []string{file.Devices}, crashed, false, false, false},
		{"devices that were refused, no memory beside another", of(1, 16, 2), []string{file.Devices}, noMemory, true, false, false},
		{"devices that were refused, and fewer cores", of(1, 16, 2), []string{file.Devices}, crashed, false, false, true},
		{"fewer cores, where nothing else can be set", of(1, 16, 1), []string{file.MicroBatch}, crashed, false, false, true},
	} {
		e := experiment(search.Random, file.PipeTune, 1)
		e.Job.AllowSharing, e.Job.EstimatedMemoryMiB = test.sharing, 1024
		r := New("exp", e, "", at)
		r.Trials = []contract.Trial{{Job: "exp-t0", Epochs: 9, State: search.Running, Settings: []contract.SettingValues{of(2, 16, 1), of(2, 8, 1), test.setting}}}
		r.Retuned(train.Applied{Job: "exp-t0", Attempt: 1, Generation: 2, Values: of(2, 8, 1), At: at})
		r.EpochEnded("exp-t0", event.EpochEnded{Attempt: 1, EpochsDone: 1, EpochSeconds: 10, Devices: 1}, at.Add(10*time.Second))
		reported := train.Applied{Job: "exp-t0", Attempt: 2, Generation: 3, At: at.Add(12 * time.Second)}
		for name, value := range test.setting {
			if slices.Contains(test.refused, name) {
				reported.Refuse(name, "not to be had")
			} else {
				reported.Take(name, value)
			}
		}
		r.Retuned(reported)
		r.AttemptLost("exp-t0", 2, test.exit, test.enlarged)
		if got := len(r.Trials[0].Failed) > 0; got != test.blamed {
			t.Errorf("%s: blamed %t, want %t", test.name, got, test.blamed)
		}
	}
}
