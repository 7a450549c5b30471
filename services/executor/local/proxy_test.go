package local

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/proxy"
)

// agent takes epochs as the job API does, after it failed some calls.
type agent struct {
	*httptest.Server
	mu         sync.Mutex
	failures   int
	times      []string
	accuracies []float64 // accuracies
}

func newAgent(t *testing.T, away int) *agent {
	t.Helper()
	a := &agent{failures: away}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			EpochsDone   int                `json:"epochs_done"`
			EpochSeconds float64            `json:"epoch_seconds"`
			Steps        int                `json:"steps"`
			Samples      int                `json:"samples"`
			Metrics      map[string]float64 `json:"metrics"`
			Overheard    bool               `json:"overheard"`
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.failures--; a.failures >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || !body.Overheard {
			t.Errorf("%+v, error %v", body, err)
		}
		a.times = append(a.times, fmt.Sprintf("%d: %.1f s, %d steps, %d samples", body.EpochsDone, body.EpochSeconds, body.Steps, body.Samples))
		a.accuracies = append(a.accuracies, body.Metrics["accuracy"])
	}))
	t.Cleanup(a.Close)
	return a
}

// The epochs of a program that only writes a log are reported before its end is known, once each, also if the agent
// is unreachable for a while.
func TestEpochsAreReadFromTheOutput(t *testing.T) {
	b := newBench(t)
	a := newAgent(t, 2)
	l := b.launch("j1", sh(`for e in 1 2 3; do
echo "2020-03-31 16:08:0$e INFO  DistriOptimizer$:408 - [Epoch $e 8/8][Iteration $e][Wall Clock ${e}s] Trained 8 records in 1 seconds. Throughput is 8 records/second. Loss is 0.5. x"
echo "2020-03-31 16:08:0$e INFO  DistriOptimizer$:452 - [Epoch $e 8/8][Iteration $e][Wall Clock ${e}s] Epoch finished. Wall clock time is ${e}500 ms"
echo "2020-03-31 16:08:0$e INFO  DistriOptimizer$:181 - [Epoch $e 8/8][Iteration $e][Wall Clock ${e}s] Top1Accuracy is Accuracy(correct: $e, count: 4, accuracy: 0.$e)"
done`))
	l.Proxy = &proxy.Spec{Format: train.LogBigDL, Address: a.URL + "/"}
	b.start(l)
	b.phase("j1", launch.Exited)
	a.mu.Lock()
	defer a.mu.Unlock()
	want := []string{"1: 1.5 s, 1 steps, 8 samples", "2: 1.0 s, 1 steps, 8 samples", "3: 1.0 s, 1 steps, 8 samples"}
	if !slices.Equal(a.times, want) || !slices.Equal(a.accuracies, []float64{0.1, 0.2, 0.3}) {
		t.Errorf("reported %q, %v", a.times, a.accuracies)
	}
	if log := b.log("j1"); strings.Count(log, "Epoch finished") != 3 {
		t.Errorf("log %s", log)
	}
}

// A published training of ten epochs, reported from the log that it left.
func TestPublishedTrainingIsReported(t *testing.T) {
	root := os.Getenv("SWITCHYARD_DATA")
	if root == "" {
		t.Skip("SWITCHYARD_DATA does not name the published measurements")
	}
	var want struct {
		Accuracies []float64 `json:"accuracy_per_epoch"`
	}
	expected, err := os.ReadFile(filepath.Join(root, "pipetune", "derived", "bigdl_log_expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(expected, &want); err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	a := newAgent(t, 0)
	l := b.launch("j1", []string{"cat", filepath.Join(root, "pipetune", "history", "bigdl_mnist_10epochs.log")})
	l.Proxy = &proxy.Spec{Format: train.LogBigDL, Address: a.URL + "/"}
	b.start(l)
	b.phase("j1", launch.Exited)
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.accuracies, want.Accuracies) || a.times[0] != "1: 125.6 s, 59 steps, 60000 samples" {
		t.Errorf("reported %q, %v", a.times, a.accuracies)
	}
}

// asking takes checkpoints and, once stop is set, answers that the programs have to leave.
type asking struct {
	*httptest.Server
	mu      sync.Mutex
	stop    bool
	signals map[string]bool
	saved   []string
}

func newAsking(t *testing.T) *asking {
	t.Helper()
	a := &asking{signals: map[string]bool{}}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if r.URL.Path == "/control" {
			a.signals[r.URL.Query().Get("signal")] = true
			_, _ = fmt.Fprintf(w, `{"stop":%t}`, a.stop)
			return
		}
		var body struct {
			Path  string `json:"path"`
			Found int64  `json:"found"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Found == 0 {
			t.Errorf("%+v, error %v", body, err)
		}
		a.saved = append(a.saved, filepath.Base(body.Path))
	}))
	t.Cleanup(a.Close)
	return a
}

// asks reports whether a supervisor has asked with a signal.
func (a *asking) asks(signal string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.signals[signal]
}

// until it gets SIGUSR1, a program and the fork of it that waits for it run; it saves, and ends with status 9.
const catches = `trap 'touch got.$$; echo 1 > tmp; mv tmp model.pt; exit 9' USR1; echo up; (while :; do sleep 0.05; done) & while :; do wait; done`

// ignorant knows no signal. It saves when asked to by a file.
const ignorant = `echo up; while :; do if [ -e save ]; then echo 2 > tmp; mv tmp model.pt; fi; sleep 0.05; done`

// TestProgramsThatCallNothingLeaveBySignal: SIGUSR1 goes to those that catch it and to no other. Without one, SIGTERM
// follows the next checkpoint.
func TestProgramsThatCallNothingLeaveBySignal(t *testing.T) {
	for _, c := range []struct {
		name     string
		commands [][]string
		by       string
		want     train.Exit
	}{
		{"catches", [][]string{sh(catches), sh("exec sleep 600")}, train.SignalSave, train.Exit{Code: 9}},
		{"ignorant", [][]string{sh(ignorant)}, train.SignalEnd, train.Exit{Signal: "SIGTERM"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, a := newBench(t), newAsking(t)
			old := filepath.Join(b.DataDir, "model.pt")
			if err := os.WriteFile(old, []byte("of an earlier attempt"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(old, time.Now(), time.Now().Add(-time.Hour)); err != nil {
				t.Fatal(err)
			}
			l := b.launch("j1", c.commands...)
			l.Proxy = &proxy.Spec{Address: a.URL + "/", Checkpoints: []string{filepath.Join(b.DataDir, "*.pt")}, Signals: true, EndsBySignal: c.by == train.SignalEnd, LookMillis: 10}
			b.start(l)
			b.phase("j1", launch.Running)
			b.until("its supervisor asks", func() bool { return a.asks(c.by) })
			a.mu.Lock()
			if len(a.saved) > 0 {
				t.Errorf("checkpoints %q before any was saved", a.saved)
			}
			a.stop = true
			a.mu.Unlock()
			b.until("it is asked to leave", func() bool { return strings.Contains(b.log("j1"), "[switchyard: asked to leave: ") })
			if err := os.WriteFile(filepath.Join(b.DataDir, "save"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			s := b.phase("j1", launch.Exited)
			s.Exit.LogTail = ""
			if s.Exit != c.want || a.saved[0] != "model.pt" {
				t.Errorf("exit %+v, want %+v; checkpoints %q; log %s", s.Exit, c.want, a.saved, b.log("j1"))
			}
			if got, _ := filepath.Glob(filepath.Join(b.DataDir, "got.*")); len(got) > 1 {
				t.Errorf("forks got the signal too: %q", got)
			}
		})
	}
}

// TestAFreshCheckpointNeedsNoOther: a program that catches nothing and has just saved is ended at once. Its next
// checkpoint would come an epoch later.
func TestAFreshCheckpointNeedsNoOther(t *testing.T) {
	b, a := newBench(t), newAsking(t)
	l := b.launch("j1", sh(`echo 1 > model.pt; exec sleep 600`))
	l.Proxy = &proxy.Spec{Address: a.URL + "/", Checkpoints: []string{filepath.Join(b.DataDir, "*.pt")}, Signals: true, EndsBySignal: true, LookMillis: 200}
	b.start(l)
	b.until("its checkpoint is reported", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.stop = len(a.saved) > 0
		return a.stop
	})
	s := b.phase("j1", launch.Exited)
	if s.Exit.Signal != "SIGTERM" {
		t.Errorf("exit %+v; log %s", s.Exit, b.log("j1"))
	}
}

// TestProgressIsReadFromWhatProgramsWrite: from lines of output and rows of a file, without those of earlier attempts.
func TestProgressIsReadFromWhatProgramsWrite(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		how    proxy.Spec
	}{
		"output": {`for e in 1 2; do echo "Epoch $e loss=0.$e"; done`, proxy.Spec{Pattern: `Epoch (?P<epoch>\d+) loss=(?P<loss>\S+)`}},
		"table":  {`for e in 0 1; do echo "$e,$((e*10)),0.$((e+1))" >> metrics.csv; done`, proxy.Spec{Tables: []string{"metrics.*"}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			var mu sync.Mutex
			ended := map[int]float64{}
			agent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				var body struct {
					EpochsDone int     `json:"epochs_done"`
					Loss       float64 `json:"loss"`
				}
				if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != "/progress" {
					t.Errorf("%s %+v, error %v", r.URL.Path, body, err)
				}
				mu.Lock()
				defer mu.Unlock()
				if _, seen := ended[body.EpochsDone]; !seen {
					ended[body.EpochsDone] = body.Loss
				}
			}))
			t.Cleanup(agent.Close)
			if err := os.WriteFile(filepath.Join(b.DataDir, "metrics.csv"), []byte("epoch,step,train_loss\n8,80,9\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			l := b.launch("j1", sh(c.script))
			c.how.Address, c.how.LookMillis, c.how.FromZero = agent.URL+"/", 10, filepath.Join(b.DataDir, "epochs-from-0")
			for i, pattern := range c.how.Tables {
				c.how.Tables[i] = filepath.Join(b.DataDir, pattern)
			}
			l.Proxy = &c.how
			b.start(l)
			b.phase("j1", launch.Exited)
			mu.Lock()
			defer mu.Unlock()
			if name == "table" && !installation.Exists(c.how.FromZero) {
				t.Error("an attempt that resumes would count from 1")
			}
			if ended[1] != 0.1 || ended[2] != 0.2 || len(ended) > 3 {
				t.Errorf("epochs and losses %v; log %s", ended, b.log("j1"))
			}
		})
	}
}
