package chaos_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/register"
	"github.com/switchyard-dl/switchyard/test/chaos"
)

// scene is a run in which a job of two epochs is killed once and succeeds, and another one ends with status 3.
type scene struct {
	ledger []chaos.Entry
	chaos.World
}

func at(second float64) time.Time { return time.Unix(0, int64(second*1e9)).UTC() }

func newScene(t *testing.T) *scene {
	t.Helper()
	line := func(what, job string, attempt, epoch int, second float64, devices string) chaos.Entry {
		return chaos.Entry{Event: what, Job: job, Attempt: attempt, PID: 10*attempt + len(job), Epoch: epoch, Seconds: second, Devices: devices}
	}
	s := &scene{ledger: []chaos.Entry{
		{Event: chaos.Submitted, Job: "a", Epochs: 2, Ends: []train.State{train.StateSucceeded}, Seconds: 1},
		{Event: chaos.Acked, Job: "a", Sequence: 1, Seconds: 1},
		{Event: chaos.Submitted, Job: "bb", Ends: []train.State{train.StateFailed}, Seconds: 1},
		{Event: chaos.Acked, Job: "bb", Sequence: 2, Seconds: 1},
		line(chaos.Start, "a", 1, 0, 2, "cpu:0"), line(chaos.Epoch, "a", 1, 1, 3, "cpu:0"), line(chaos.Killed, "a", 1, 1, 4, "cpu:0"),
		line(chaos.Start, "bb", 1, 0, 2, "cpu:1"), line(chaos.Exit, "bb", 1, 0, 3, "cpu:1"),
		line(chaos.Start, "a", 2, 1, 5, "cpu:0"), line(chaos.Epoch, "a", 2, 2, 6, "cpu:0"), line(chaos.Exit, "a", 2, 2, 7, "cpu:0"),
	}}
	bodies := []struct {
		job, name string
		body      any
	}{
		{"a", event.FactSubmitted, &event.Submitted{Spec: train.Spec{Name: "a", MaxEpochs: 2}}},
		{"bb", event.FactSubmitted, &event.Submitted{Spec: train.Spec{Name: "bb"}}},
		{"a", event.FactAdmitted, &event.Admitted{Spec: train.Spec{Name: "a", MaxEpochs: 2}}},
		{"bb", event.FactAdmitted, &event.Admitted{Spec: train.Spec{Name: "bb"}}},
		{"a", event.FactStarted, &event.Started{Attempt: 1, Generation: 1}},
		{"bb", event.FactStarted, &event.Started{Attempt: 1, Generation: 1}},
		{"a", event.FactEpochEnded, &event.EpochEnded{Attempt: 1, EpochsDone: 1}},
		{"bb", event.FactFailed, &event.Failed{Attempt: 1}},
		{"a", event.FactAttemptLost, &event.AttemptLost{Attempt: 1, EpochsDone: 1}},
		{"a", event.FactStarted, &event.Started{Attempt: 2, Generation: 2, EpochsDone: 1}},
		{"a", event.FactEpochEnded, &event.EpochEnded{Attempt: 2, EpochsDone: 2}},
		{"a", event.FactSucceeded, &event.Succeeded{Attempt: 2, EpochsDone: 2}},
	}
	s.Register = map[train.JobID]train.Job{}
	for i, b := range bodies {
		f := chaos.Fact{Job: train.JobID(b.job), Fact: register.Fact{Name: b.name, Time: at(float64(i)), Sequence: uint64(i + 1), Body: b.body}}
		s.Facts = append(s.Facts, f)
		job := s.Register[f.Job]
		job.ID = f.Job
		next, err := register.Fold(job, f.Fact)
		if err != nil {
			t.Fatal(err)
		}
		s.Register[f.Job] = next
	}
	s.First, s.Last, s.Plans = 1, uint64(len(s.Facts)), []uint64{1, 2}
	s.Attempts = map[train.JobID]train.Attempt{"a": {Number: 2, Outcome: train.OutcomeSucceeded, Published: true}}
	s.Books = []contract.Book{{Node: "n", Totals: map[string]contract.Totals{"cpu": {Measured: 6, Attributed: 3, Idle: 2, Unattributed: 1}}}}
	s.Intervals = []chaos.Interval{{Node: "n", Boot: "x", Sequence: 1, From: at(0), To: at(1)}, {Node: "n", Boot: "x", Sequence: 2, From: at(1), To: at(2)}}
	s.Accounts = map[train.JobID]int{"a": 1, "bb": 1}
	return s
}

// without removes facts, as damage does: from the stream, not from its sequences.
func (s *scene) without(lost func(chaos.Fact) bool) { s.Facts = slices.DeleteFunc(s.Facts, lost) }

func (s *scene) job(id train.JobID, change func(*train.Job)) {
	j := s.Register[id]
	change(&j)
	s.Register[id] = j
}

// line returns the n-th line of the ledger about an event.
func (s *scene) line(what string, n int) *chaos.Entry {
	for i := range s.ledger {
		if s.ledger[i].Event == what {
			if n--; n == 0 {
				return &s.ledger[i]
			}
		}
	}
	return &chaos.Entry{}
}

func TestTheJudgeSeesEachViolation(t *testing.T) {
	succeeded := func(f chaos.Fact) bool { return f.Name == event.FactSucceeded }
	of := func(id train.JobID) func(chaos.Fact) bool { return func(f chaos.Fact) bool { return f.Job == id } }
	announced := func(s *scene) { s.ledger = append(s.ledger, chaos.Entry{Event: chaos.Announced, Text: "JOBS: a gap"}) }
	tests := []struct {
		name  string
		spoil func(s *scene)
		want  []string // invariant and words of each violation; none if all is well
	}{
		{"all is well", func(*scene) {}, nil},
		{"an acked job without a record", func(s *scene) { delete(s.Register, "bb") }, []string{"I1 bb was acknowledged (sequence 2) and has no record"}},
		{"a job that hangs", func(s *scene) { s.job("a", func(j *train.Job) { j.State = train.StateRunning }) }, []string{"I1 a has not ended: running", "I5 state"}},
		{"a wrong end", func(s *scene) { s.line(chaos.Submitted, 2).Ends = []train.State{train.StateSucceeded} }, []string{"I1 bb ended as failed"}},
		{"two ends", func(s *scene) {
			s.Facts, s.Last = append(s.Facts, chaos.Fact{Job: "a", Fact: register.Fact{Name: event.FactFailed, Sequence: 13, Body: &event.Failed{}}}), 13
		}, []string{"I1 a has 2 terminal facts"}},
		{"a failure after SIGTERM, although it had saved", func(s *scene) {
			s.ledger = append(s.ledger, *s.line(chaos.Epoch, 2), chaos.Entry{Event: chaos.Terminated, Job: "a", Attempt: 2})
			s.line(chaos.Submitted, 1).Ends = nil
			s.job("a", func(j *train.Job) { j.State = train.StateFailed })
		}, []string{"I1 a ended as failed", "I5 state"}},
		{"a failure after SIGTERM before the first checkpoint", func(s *scene) {
			s.line(chaos.Submitted, 2).Ends = nil
			s.ledger = append(s.ledger, chaos.Entry{Event: chaos.Terminated, Job: "bb", Attempt: 1})
		}, nil},
		{"a failure without SIGTERM", func(s *scene) { s.line(chaos.Submitted, 2).Ends = nil }, []string{"I1 bb ended as failed"}},
		{"an epoch that nobody did", func(s *scene) { *s.line(chaos.Killed, 1) = *s.line(chaos.Exit, 1); s.line(chaos.Epoch, 1).Epoch = 7 }, []string{
			"I1 a never did 1 of its 2", "I2 attempt 2 started while attempt 1 was running", "I2 a lost 1 attempts although 0", "I8 a attempt 1 (pid 11) never wrote",
		}},
		{"an attempt started twice", func(s *scene) { s.line(chaos.Start, 3).Attempt = 1; s.line(chaos.Exit, 2).Attempt = 1 }, []string{"I2 attempt 1 rank 0 was started 2 times"}},
		{"two attempts at once", func(s *scene) { s.line(chaos.Start, 3).Seconds = 2.5 }, []string{"I2 attempt 2 started while attempt 1 was running"}},
		{"an epoch again for nothing", func(s *scene) { s.line(chaos.Epoch, 2).Epoch = 1; s.ledger = append(s.ledger, *s.line(chaos.Epoch, 1)) }, []string{"I2 a did 2 epochs again although 1"}},
		{"a loss without a kill", func(s *scene) { s.line(chaos.Killed, 1).Event = chaos.Exit }, []string{"I2 a lost 1 attempts although 0"}},
		{"a loss without room on the disk", func(s *scene) {
			s.line(chaos.Killed, 1).Event = chaos.Exit
			s.ledger = append(s.ledger, chaos.Entry{Event: chaos.Fault, Text: chaos.DiskFull, Seconds: 3}, chaos.Entry{Event: chaos.Healed, Text: chaos.DiskFull, Seconds: 5})
		}, nil},
		{"a device held twice", func(s *scene) { s.line(chaos.Start, 2).Devices = "cpu:1,cpu:0" }, []string{`I3 jobs a and bb both held a device`}},
		{"plans go back", func(s *scene) { s.Plans = []uint64{2, 2} }, []string{"I4 plan 2 came after plan 2"}},
		{"attempts go back", func(s *scene) {
			s.Facts[9].Body = &event.Started{Attempt: 1, Generation: 2, EpochsDone: 1}
		}, []string{"I4 attempt 1 of generation 2 was started after attempt 1", "I5 generation: 2, 1"}},
		{"a record that is no fold", func(s *scene) { s.job("bb", func(j *train.Job) { j.Recoveries = 4 }) }, []string{"I5 bb: its record and the fold of its facts differ in recoveries: 4, 0"}},
		{"an attempt that no record knows", func(s *scene) { s.line(chaos.Start, 2).Attempt = 2; s.line(chaos.Exit, 1).Attempt = 2 }, []string{"I5 bb began attempt 2, its record knows of 1"}},
		{"energy from nothing", func(s *scene) { s.Books[0].Totals["cpu"] = contract.Totals{Measured: 6, Attributed: 7} }, []string{"I6 node n, cpu: measured 6 µJ"}},
		{"an interval twice", func(s *scene) { s.Intervals[1].From = at(0.5) }, []string{"I6 interval 2"}},
		{"an hour twice, by a clock that was set", func(s *scene) {
			s.Intervals[1].From = at(0.5)
			s.ledger = append(s.ledger, chaos.Entry{Event: chaos.Fault, Text: chaos.ClockSet})
		}, nil},
		{"another boot begins anew", func(s *scene) { s.Intervals[1].Boot, s.Intervals[1].Sequence = "y", 1 }, nil},
		{"two accounts", func(s *scene) { s.Accounts["a"] = 2 }, []string{"I6 a has 2 final accounts"}},
		{"another message in its place", func(s *scene) { s.line(chaos.Acked, 2).Sequence = 3 }, []string{`I7 bb was acknowledged as message 3, which is "admitted" of "a"`}},
		{"a silent gap", func(s *scene) { s.without(succeeded) }, []string{"I1 a has 0 terminal facts", "I5 a: its record", "I7 11 facts of jobs are stored, from sequence 1 to 12"}},
		{"an announced gap", func(s *scene) { s.without(succeeded); announced(s) }, nil},
		{"an announced loss of a job", func(s *scene) { s.without(of("bb")); delete(s.Register, "bb"); announced(s) }, nil},
		{"a job forgotten although its facts are there", func(s *scene) { delete(s.Register, "bb"); announced(s) }, []string{"I1 bb was acknowledged"}},
		{"a message that cannot be read", func(s *scene) { s.Facts[4].Body = nil }, []string{"I5", "I7 message 5, started of job a, cannot be decoded"}},
		{"an orphan", func(s *scene) { s.Processes = []int{4711} }, []string{"I8 processes [4711]"}},
		{"no exit", func(s *scene) { s.line(chaos.Exit, 2).Event = chaos.Step }, []string{"I8 a attempt 2 (pid 21) never wrote its exit"}},
		{"a leaked device", func(s *scene) { s.Attempts["a"] = train.Attempt{Number: 2, Devices: []train.DeviceID{"cpu:0"}} }, []string{"I8 attempt 2 of job a holds [cpu:0]"}},
		{"work left", func(s *scene) {
			s.Unhandled, s.Poison, s.Unready = map[string]time.Duration{"profiler": 12 * time.Second, "energy": time.Second}, []string{"bad"}, map[string]string{"web": "starting"}
		}, []string{"I8 consumer profiler has not handled a message for 12s", "I8 a message could not be handled: bad", "I8 web is not ready: starting"}},
	}
	seen := map[string]bool{}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene(t)
			tt.spoil(s)
			found := chaos.Judge(chaos.Add(s.ledger, chaos.Entry{}), s.World)
			verdict := chaos.Verdict(found)
			if len(tt.want) == 0 && len(found) > 0 || len(tt.want) > len(found) {
				t.Fatalf("found\n%s\nwant %q", verdict, tt.want)
			}
			for _, want := range tt.want {
				invariant, words, _ := strings.Cut(want, " ")
				seen[invariant] = true
				if !slices.ContainsFunc(found, func(v chaos.Violation) bool { return v.Invariant == invariant && strings.Contains(v.Text, words) }) {
					t.Errorf("%q is not found in\n%s", want, verdict)
				}
				if !strings.Contains(verdict, invariant+"  BROKEN") {
					t.Errorf("the verdict does not say that %s is broken:\n%s", invariant, verdict)
				}
			}
		})
	}
	for _, i := range chaos.Invariants() {
		if !seen[i[0]] {
			t.Errorf("no row breaks %s", i[0])
		}
	}
}

func TestTheLedgerIsReadInTheOrderOfItsTimes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	if entries, err := chaos.Read(path); err != nil || len(entries) != 0 {
		t.Errorf("before the first line: %v, %v", entries, err)
	}
	for _, e := range []chaos.Entry{{Event: chaos.Exit, Seconds: 2}, {Event: chaos.Start, Seconds: 1}, {Event: chaos.Fault}} {
		if err := chaos.Append(path, e); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := chaos.Read(path)
	if err != nil || len(entries) != 3 || entries[0].Event != chaos.Start || entries[2].Seconds < 1e9 {
		t.Errorf("%+v, %v", entries, err)
	}
}
