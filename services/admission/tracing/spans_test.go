package tracing

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// history gives the bodies of facts their places in the stream and times, ten seconds apart.
func history(bodies ...any) []Fact {
	var all []Fact
	for i, b := range bodies {
		all = append(all, Fact{At: time.Unix(int64(10*i), 0), Sequence: uint64(i), Body: b})
	}
	return all
}

// words shows spans as: name, first and last second, the fact that ends it, failure.
func words(spans []Span) []string {
	var all []string
	for _, s := range spans {
		line := fmt.Sprintf("%s %d-%d by %d", s.Name, s.Start.Unix(), s.End.Unix(), s.By)
		if s.Failure != "" {
			line += ": " + s.Failure
		}
		all = append(all, line)
	}
	return all
}

func submitted(name string) *event.Submitted { return &event.Submitted{Spec: train.Spec{Name: name}} }

func TestSpansFollowFromFacts(t *testing.T) {
	run := &event.Wanted{State: train.WantRun}
	for _, c := range []struct {
		name  string
		facts []any
		want  []string
	}{
		{"nothing is over", []any{submitted("j")}, nil},
		{"a job that succeeds", []any{submitted("j"), &event.Admitted{}, &event.Planned{}, &event.Started{Attempt: 1}, &event.Succeeded{Attempt: 1}}, []string{
			"admission 0-10 by 1", "decision 10-20 by 3", "start 20-30 by 3", "attempt 30-40 by 4", "job 0-40 by 4",
		}},
		{"a submission that is wrong", []any{submitted("j"), &event.Rejected{Message: "no such key"}}, []string{"admission 0-10 by 1: no such key", "job 0-10 by 1: no such key"}},
		{"cancelled while it waits", []any{submitted("j"), &event.Admitted{}, &event.Cancelled{}}, []string{"admission 0-10 by 1", "decision 10-20 by 2", "job 0-20 by 2"}},
		{"moved, lost and failed", []any{
			submitted("j"), &event.Admitted{}, &event.Planned{}, &event.Planned{}, &event.Started{Attempt: 1}, &event.Planned{}, &event.Preempted{Attempt: 1}, &event.Started{Attempt: 2},
			&event.AttemptLost{Attempt: 2}, &event.Planned{}, &event.Started{Attempt: 3}, &event.Failed{Attempt: 3, Reason: train.Reason{Message: "status 1"}},
		}, []string{
			"admission 0-10 by 1", "decision 10-30 by 4", "start 30-40 by 4", "attempt 40-60 by 6", "decision 60-70 by 7", "start 70-70 by 7",
			"attempt 70-80 by 8: the attempt was lost", "decision 80-90 by 10", "start 90-100 by 10", "attempt 100-110 by 11: status 1", "job 0-110 by 11: status 1",
		}},
		{"resumed after its end", []any{
			submitted("j"), &event.Admitted{}, &event.Cancelled{}, &event.Started{Attempt: 1}, run, &event.Planned{}, &event.Started{Attempt: 1}, run, &event.Succeeded{Attempt: 1}, run,
		}, []string{
			"admission 0-10 by 1", "decision 10-20 by 2", "job 0-20 by 2", "decision 40-50 by 6", "start 50-60 by 6", "attempt 60-80 by 8", "job 40-80 by 8",
		}},
		{"its submission has left the stream", []any{&event.Admitted{}, &event.Started{Attempt: 1}, &event.Succeeded{Attempt: 1}}, nil},
	} {
		spans := Spans("j", history(c.facts...))
		if diff := cmp.Diff(c.want, words(spans)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", c.name, diff)
		}
		checkTree(t, c.name, spans)
	}
}

// checkTree: all spans are of one trace, no id comes twice, and each parent is the span of a life.
func checkTree(t *testing.T, name string, spans []Span) {
	t.Helper()
	ids, roots := map[string]bool{}, map[string]bool{}
	for _, s := range spans {
		if ids[s.ID] || !isID(s.ID, 16) || !isID(s.Trace, 32) || s.Trace != spans[0].Trace {
			t.Errorf("%s: ids of %+v", name, s)
		}
		ids[s.ID] = true
		if s.Name == spanJob {
			roots[s.ID] = true
		}
	}
	for _, s := range spans {
		if s.Name != spanJob && !roots[s.Parent] {
			t.Errorf("%s: %s has the parent %s, want one of %v", name, s.Name, s.Parent, slices.Collect(maps.Keys(roots)))
		}
	}
}

// TestAPartOfTheFactsGivesTheSameSpans, so that each can be sent as soon as it is over.
func TestAPartOfTheFactsGivesTheSameSpans(t *testing.T) {
	facts := history(submitted("j"), &event.Admitted{}, &event.Planned{}, &event.Started{Attempt: 1}, &event.Preempted{Attempt: 1}, &event.Planned{}, &event.Started{Attempt: 2}, &event.Succeeded{Attempt: 2})
	var sent []Span
	for n := range facts {
		for _, s := range Spans("j", facts[:n+1]) {
			if s.By == facts[n].Sequence {
				sent = append(sent, s)
			}
		}
	}
	if diff := cmp.Diff(Spans("j", facts), sent); diff != "" {
		t.Errorf("(-all at once +one by one)\n%s", diff)
	}
}

func TestATraceOfTheSubmitterGoesOn(t *testing.T) {
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for parent, kept := range map[string]bool{
		"00-" + trace + "-" + span + "-01": true, "": false, "00-" + trace + "-" + span: false, "00-" + strings.Repeat("0", 32) + "-" + span + "-01": false, "00-" + trace + "-" + strings.ToUpper(span) + "-01": false,
	} {
		facts := history(submitted("j"), &event.Rejected{Message: "no"})
		facts[0].TraceParent = parent
		job := Spans("j", facts)[1]
		if (job.Trace == trace && job.Parent == span) != kept || !kept && job.Parent != "" {
			t.Errorf("%q: trace %s, parent %q", parent, job.Trace, job.Parent)
		}
	}
}
