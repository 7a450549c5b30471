package register

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

func epoch0() time.Time { return time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC) }

// drawBody draws a body of the fact with small numbers, so that old attempts and repeated epochs are common.
func drawBody(t *rapid.T, fact string) any {
	attempt, epochs := rapid.IntRange(0, 4).Draw(t, "attempt"), rapid.IntRange(0, 9).Draw(t, "epochs")
	cause := rapid.SampledFrom([]train.StopCause{train.StopNone, train.StopPreempt, train.StopRescale, train.StopRetune, train.StopCancel, train.StopConverged, train.StopOverspent}).Draw(t,
		"cause")
	devices := []train.DeviceID{"cpu:0", "cpu:1"}[:rapid.IntRange(1, 2).Draw(t, "devices")]
	reason := train.Reason{Code: "Because", Message: strings.Repeat("m", rapid.SampledFrom([]int{0, 9, 9000}).Draw(t, "length"))}
	switch fact {
	case event.FactSubmitted:
		return &event.Submitted{Spec: train.Spec{Name: "n", MaxEpochs: 9}}
	case event.FactAdmitted:
		after := &train.AfterSpec{OK: []train.JobID{"other1"}, Any: []train.JobID{"other2"}}
		return &event.Admitted{Spec: train.Spec{Name: "n", MaxEpochs: 9, After: after}.WithDefaults(), Position: 1}
	case event.FactRejected:
		return &event.Rejected{Reasons: []train.Reason{reason}, Message: "no"}
	case event.FactConflicted:
		return &event.Conflicted{Message: "another body was ignored"}
	case event.FactQueued:
		return &event.Queued{Generation: 1, Blockers: []train.Reason{reason}, Position: epochs}
	case event.FactPlanned:
		return &event.Planned{Generation: 2, Devices: devices, Reason: reason, RemainingSeconds: float64(epochs)}
	case event.FactStarted:
		return &event.Started{Attempt: attempt, Devices: devices, EpochsDone: epochs}
	case event.FactEpochEnded:
		return &event.EpochEnded{Attempt: attempt, EpochsDone: epochs, EpochSeconds: 1}
	case event.FactCheckpointWritten:
		return &event.CheckpointWritten{Attempt: attempt, EpochsDone: epochs}
	case event.FactStopRequested:
		return &event.StopRequested{Attempt: attempt, Cause: cause, Reason: reason}
	case event.FactStopWithdrawn:
		return &event.StopWithdrawn{Attempt: attempt, Generation: 3}
	case event.FactPreempted:
		return &event.Preempted{Attempt: attempt, Cause: cause, EpochsDone: epochs, Forced: epochs == 3}
	case event.FactAttemptLost:
		return &event.AttemptLost{Attempt: attempt, EpochsDone: epochs, Exit: train.Exit{Signal: "SIGKILL"}, RetrySeconds: 1}
	case event.FactReestimated:
		return &event.Reestimated{EpochsDone: epochs, TotalSeconds: 10, RemainingSeconds: float64(epochs), PriorityPenalty: attempt, Warning: reason.Message}
	case event.FactStraggling:
		return &event.Straggling{Straggler: train.Straggler{Attempt: attempt, Rank: 1, Node: "n", Device: devices[0], Slowdown: 2}, Workers: 4}
	case event.FactTuned:
		return &event.Tuned{Group: "g", BatchSize: 1 + epochs, Submitted: 1}
	case event.FactOutgrew:
		return &event.Outgrew{Attempt: attempt, Node: "n", Device: devices[0], Part: 1 << 20, Used: unit.Bytes(epochs) << 20, Needs: unit.Bytes(epochs+1) << 20}
	case event.FactConverged:
		return &event.Converged{EpochsDone: epochs, LossDecrease: 0.1}
	case event.FactOverspent:
		return &event.Overspent{Group: strings.Repeat("g", 9000), CostJoules: 2.5, CeilingJoules: 2}
	case event.FactDependencyEnded:
		return &event.DependencyEnded{Job: train.JobID(fmt.Sprint("other", attempt)), State: rapid.SampledFrom([]train.State{train.StateSucceeded, train.StateFailed}).Draw(t, "state")}
	case event.FactCancelRequested:
		return &event.CancelRequested{By: "ann"}
	case event.FactWanted:
		want := rapid.SampledFrom([]train.Want{train.WantRun, train.WantHeld, train.WantPaused}).Draw(t, "want")
		return &event.Wanted{State: want, By: "ann", Requeue: epochs == 0 && want == train.WantRun, Force: epochs == 1}
	case event.FactEditRequested:
		return &event.EditRequested{}
	case event.FactEditDecided:
		b := &event.EditDecided{Request: uint64(epochs), By: strings.Repeat("é", 9000), Edit: train.Edit{Set: train.Editable{Priority: &attempt, Labels: map[string]string{"a": fmt.Sprint(epochs)}}}}
		if epochs == 0 {
			b.Refused = []train.Reason{reason}
		}
		return b
	case event.FactSucceeded:
		return &event.Succeeded{Attempt: attempt, EpochsDone: epochs}
	case event.FactFailed:
		return &event.Failed{Attempt: attempt, EpochsDone: epochs, Exit: train.Exit{Code: 1, LogTail: strings.Repeat("é", 9000)}, Reason: reason}
	case event.FactCancelled:
		return &event.Cancelled{Attempt: attempt, EpochsDone: epochs}
	}
	t.Fatalf("no body for %s", fact)
	return nil
}

func jobFacts() []string {
	var names []string
	for _, k := range event.Kinds() {
		if k.Entity == "job" {
			names = append(names, k.Fact)
		}
	}
	return names
}

// drawLife draws facts in any order; endings are rare, so that lives are long.
func drawLife(t *rapid.T) []Fact {
	names := jobFacts()
	var common []string
	for _, n := range names {
		switch n {
		case event.FactSucceeded, event.FactFailed, event.FactCancelled, event.FactRejected, event.FactSubmitted:
		default:
			common = append(common, n)
		}
	}
	facts := []Fact{{Name: event.FactSubmitted}, {Name: event.FactAdmitted}}
	for range rapid.IntRange(0, 40).Draw(t, "length") {
		pool := common
		if rapid.IntRange(0, 9).Draw(t, "rare") == 0 {
			pool = names
		}
		facts = append(facts, Fact{Name: rapid.SampledFrom(pool).Draw(t, "fact")})
	}
	at := epoch0()
	for i := range facts {
		at = at.Add(time.Duration(rapid.IntRange(-2, 10).Draw(t, "seconds")) * time.Second)
		facts[i].Sequence, facts[i].Time, facts[i].Body = uint64(i+1), at, drawBody(t, facts[i].Name)
	}
	return facts
}

func foldAll(t *rapid.T, facts []Fact, step func(before, after train.Job, f Fact)) train.Job {
	job := train.Job{ID: "j"}
	for _, f := range facts {
		frozen, _ := json.Marshal(job)
		next, err := Fold(job, f)
		if err != nil && !errors.Is(err, ErrIllegal) {
			t.Fatal(err)
		}
		if again, _ := json.Marshal(job); string(again) != string(frozen) {
			t.Fatalf("folding %s changed the record that it was given", f.Name)
		}
		if step != nil {
			step(job, next, f)
		}
		job = next
	}
	return job
}

func TestOtherWordsForTheSameFactsAreNoDifference(t *testing.T) {
	stored := train.Job{ID: "resnet", Reason: "Training", Message: "8 of 20 epochs done, loss 0.1667", Hint: "wait", EpochsDone: 8}
	folded := stored
	folded.Message, folded.Hint = "8 of 20 epochs done, repeats epoch 7", ""
	if found := Differences(stored, folded); found != nil {
		t.Error(found)
	}
	folded.EpochsDone = 9
	if found := Differences(stored, folded); len(found) != 1 {
		t.Error(found)
	}
}

// Another version may make a hash, words and the time of an array's submission otherwise of the same facts.
func TestWhatAnotherVersionDerivesOtherwiseIsNoDifference(t *testing.T) {
	at := epoch0()
	stored := train.Job{
		ID: "grid-4", SpecHash: "5415", SubmittedAt: at, Since: at, Spec: train.Spec{ArrayMember: &train.ArrayMember{Array: "grid", Index: 4}},
		History: []train.Change{{At: at, Fact: event.FactSubmitted, Message: "waits to be admitted"}},
	}
	folded := stored
	at = at.Add(time.Millisecond)
	folded.SpecHash, folded.SubmittedAt, folded.Since = "4442", at, at
	folded.History = []train.Change{{At: at, Fact: event.FactSubmitted, Message: "waits"}}
	if found := Differences(stored, folded); found != nil {
		t.Error(found)
	}
	if stored.History[0].Message == "" || stored.History[0].At.IsZero() {
		t.Error("the comparison changed a record")
	}
	stored.Spec, folded.Spec = train.Spec{}, train.Spec{}
	if found := Differences(stored, folded); len(found) != 3 {
		t.Errorf("of a job that is in no array: %q", found)
	}
}

func TestRepeatedFactsChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		facts := drawLife(t)
		once := foldAll(t, facts, nil)
		// A consumer that crashes gets its last facts again, or all of them.
		var repeated []Fact
		for i := range facts {
			repeated = append(repeated, facts[rapid.IntRange(0, i).Draw(t, "from"):i+1]...)
		}
		if diff := cmp.Diff(once, foldAll(t, repeated, nil)); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(once, foldAll(t, append(facts, facts...), nil)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestWhatAlwaysHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job := foldAll(t, drawLife(t), func(before, after train.Job, f Fact) {
			// What has ended may be resumed with another spec: its state and what it has done stay.
			if f.Name == event.FactEditDecided {
				was := before
				was.Spec, was.Edits, was.LastSequence = after.Spec, after.Edits, after.LastSequence
				if diff := cmp.Diff(was, after, cmpopts.EquateEmpty()); diff != "" || len(after.Edits) > maxEdits {
					t.Fatalf("an edit changed more than the spec: %s", diff)
				}
				return
			}
			resumes := f.Name == event.FactWanted && (before.State == train.StateFailed || before.State == train.StateCancelled)
			if before.State.Terminal() && !cmp.Equal(before, after) && !(resumes && after.Resumed == before.Resumed+1) {
				t.Fatalf("%s changed a job that is %s", f.Name, before.State)
			}
			if after.EpochsDone < before.EpochsDone || after.Attempt < before.Attempt || after.RunSeconds < before.RunSeconds {
				t.Fatalf("%s: something fell from %+v to %+v", f.Name, before, after)
			}
			if !legal(before.State, after, f.Name) {
				t.Fatalf("%s moved %s to %s", f.Name, before.State, after.State)
			}
			if after.State != before.State && !after.Since.Equal(f.Time) {
				t.Fatalf("%s moved the state, but not since when", f.Name)
			}
			if after.Message == "" || after.Reason == "" {
				t.Fatalf("%s leaves state %s without a word", f.Name, after.State)
			}
		})
		if len(job.History) > MaxHistory || len(job.Warnings) > maxWarnings {
			t.Fatalf("%d changes, %d warnings", len(job.History), len(job.Warnings))
		}
		data, err := json.Marshal(job)
		if err != nil || len(data) > 900<<10 {
			t.Fatalf("a record of %d bytes, error %v", len(data), err)
		}
		if waits(job.State) && len(job.Devices) > 0 && job.State != train.StateStarting && job.Attempt == 0 {
			t.Fatalf("waits in %s with devices %v", job.State, job.Devices)
		}
	})
}

// legal reports whether the table moves a job from one state to the other: by the fact alone, by the fact and an epoch
// that overtook it, or not at all. A job that waits is held or paused while people want that.
func legal(from train.State, job train.Job, fact string) bool {
	to := job.State
	if from == to || to == from.Under(job.Wants()) && to.Under(job.Wants()) == to {
		return true
	}
	next, err := train.Next(from, fact)
	if err != nil {
		return false
	}
	after, err := train.Next(next, event.FactEpochEnded)
	return to == next.Under(job.Wants()) || fact == event.FactStarted && err == nil && to == after
}

func TestHistoryKeepsTheNewest(t *testing.T) {
	job := train.Job{ID: "j"}
	fold := func(sequence int, name string, body any) {
		t.Helper()
		var err error
		if job, err = Fold(job, Fact{Name: name, Sequence: uint64(sequence), Time: epoch0().Add(time.Duration(sequence) * time.Second), Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	fold(1, event.FactSubmitted, &event.Submitted{})
	fold(2, event.FactAdmitted, &event.Admitted{})
	for i := range 300 {
		fold(3+2*i, event.FactStarted, &event.Started{Attempt: i + 1})
		fold(4+2*i, event.FactPreempted, &event.Preempted{Attempt: i + 1, Cause: train.StopRescale})
	}
	if len(job.History) != MaxHistory || job.History[MaxHistory-1].Attempt != 300 || job.History[0].Attempt != 201 {
		t.Fatalf("%d changes from attempt %d to %d", len(job.History), job.History[0].Attempt,
			job.History[len(job.History)-1].Attempt)
	}
	if job.Restarts != 299 || job.Rescales != 300 || job.RunSeconds != 300 {
		t.Fatalf("%d restarts, %d rescales, %v s", job.Restarts, job.Rescales, job.RunSeconds)
	}
}

func TestFoldRefusesTheBodyOfAnotherFact(t *testing.T) {
	for _, body := range []any{nil, &event.Started{}, event.Submitted{}, "x"} {
		if job, err := Fold(train.Job{ID: "j"}, Fact{Name: event.FactSubmitted, Sequence: 1, Body: body}); err == nil || job.State != train.StateNone {
			t.Errorf("%T was folded as a submission", body)
		}
	}
}

func TestEveryFactOfAJobIsFolded(t *testing.T) {
	for _, k := range event.Kinds() {
		if k.Entity != "job" || k.Fact == event.FactConflicted {
			continue
		}
		job, state := train.Job{ID: "j"}, train.StateRunning
		if _, err := apply(&job, Fact{Name: k.Fact, Sequence: 1, Body: k.New()}, &state); err != nil && !errors.Is(err, errWant) {
			t.Errorf("%s: %v", k.Fact, err)
		}
	}
}

func TestHashDistinguishesSubmissions(t *testing.T) {
	a, errA := Hash(train.Spec{Name: "a", Env: map[string]string{"X": "1", "Y": "2"}})
	b, errB := Hash(train.Spec{Name: "a", Env: map[string]string{"Y": "2", "X": "1"}})
	c, errC := Hash(train.Spec{Name: "a", Env: map[string]string{"X": "1", "Y": "3"}})
	if err := errors.Join(errA, errB, errC); err != nil || a != b || a == c || len(a) != 64 {
		t.Fatal(a, b, c, err)
	}
}

func TestClip(t *testing.T) {
	for _, tc := range []struct {
		s    string
		n    int
		want string
	}{{"abc", 3, "abc"}, {"abcdef", 5, "abc.."}, {"ééééé", 7, "éé.."}} {
		if got := clip(tc.s, tc.n); got != tc.want {
			t.Errorf("clip %q to %d: %q, want %q", tc.s, tc.n, got, tc.want)
		}
	}
	if got := clipTail("ééab", 3); got != "ab" && got != "éab" || len(got) > 3 {
		t.Errorf("tail %q", got)
	}
}

// The reason has the two figures of the fact, and no ratio, which the fact does not have.
func TestTheReasonOfAJobThatCostsTooMuch(t *testing.T) {
	job := train.Job{ID: "j"}
	overspent(&job, &event.Overspent{Group: "nightly", CostJoules: 25.04, CeilingJoules: 25})
	want := "it has cost 25.04 J in energy and time; its limit, set from the cheapest job of group nightly, is 25 J"
	if job.Overspent != want {
		t.Errorf("%q, want %q", job.Overspent, want)
	}
}

// A batch that was ignored once is not asked for again: the job keeps its own.
func TestAnIgnoredBatchIsRemembered(t *testing.T) {
	job, sequence := train.Job{ID: "j"}, uint64(0)
	fold := func(fact string, body any) {
		t.Helper()
		sequence++
		folded, err := Fold(job, Fact{Name: fact, Sequence: sequence, Body: body})
		if err != nil {
			t.Fatal(err)
		}
		job = folded
	}
	spec := train.Spec{BatchSize: 64, MaxEpochs: 3}
	fold(event.FactSubmitted, &event.Submitted{Spec: spec})
	fold(event.FactAdmitted, &event.Admitted{Spec: spec})
	fold(event.FactStarted, &event.Started{Attempt: 1})
	for i, c := range []struct {
		ended event.EpochEnded
		own   int
	}{
		{event.EpochEnded{Batch: train.Batch{LocalBatch: 16}}, 0},
		{event.EpochEnded{BatchIgnored: true}, 64},
		{event.EpochEnded{Batch: train.Batch{LocalBatch: 16}}, 64},
	} {
		c.ended.Attempt, c.ended.EpochsDone = 1, i+1
		fold(event.FactEpochEnded, &c.ended)
		if job.OwnBatch != c.own {
			t.Errorf("own batch %d after %+v, want %d", job.OwnBatch, c.ended, c.own)
		}
	}
}

func ExampleFold() {
	job := train.Job{ID: "mnist"}
	job, _ = Fold(job, Fact{Name: event.FactSubmitted, Sequence: 1, Body: &event.Submitted{}})
	job, _ = Fold(job, Fact{Name: event.FactAdmitted, Sequence: 2, Body: &event.Admitted{Position: 3}})
	_, err := Fold(job, Fact{Name: event.FactAdmitted, Sequence: 3, Body: &event.Admitted{}})
	fmt.Println(job.State, "-", job.Message)
	fmt.Println(err)
	// Output:
	// queued - waits for the next plan, position 3 in the queue
	// fold job mnist: illegal transition: fact "admitted" in state "queued"
}
