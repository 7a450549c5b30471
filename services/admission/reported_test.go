package admission

import (
	"errors"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestTheAttemptOfAReport(t *testing.T) {
	for _, c := range []struct {
		subject, body string
		job           train.JobID
		number        int
		foreign       bool
	}{
		{"yard.job.a.epoch_ended.v1", `{"attempt":2,"epochs_done":1}`, "a", 2, false},
		{"yard.sample.a.stepped.v1", `{"job":"a","attempt":3}`, "a", 3, false},
		{"yard.sample.a.stepped.v1", `{"job":"b","attempt":3}`, "a", 3, true},
		{"yard.job.a.epoch_ended.v1", `[`, "a", 0, true},
		{"yard.job.a.epoch_ended", `{}`, "", 0, true},
		{"$KV.reports.a.4", ``, "a", 4, false},
		{"$KV.reports.a.x", ``, "a", 0, true},
		{"$KV.reports.a", ``, "a", 0, true},
	} {
		m := bus.Message{Subject: c.subject, Data: []byte(c.body)}
		m.Parsed, m.ParseErr = event.ParseSubject(c.subject)
		job, number, err := reportedOf(m)
		if job != c.job || number != c.number || errors.Is(err, bus.ErrForeign) != c.foreign || (err != nil) != c.foreign {
			t.Errorf("%s %s: attempt %d of %q, %v", c.subject, c.body, number, job, err)
		}
	}
}

func TestWhereAnAttemptHasProcesses(t *testing.T) {
	gang := train.Attempt{Number: 1, Parts: []train.Part{{Node: "a"}, {Node: "b"}}, Servers: []train.ServerPart{{Node: "c", Count: 1}}}
	for node, want := range map[train.NodeID]bool{"a": true, "b": true, "c": true, "d": false} {
		if on(gang, node) != want {
			t.Errorf("a gang is on %q: %v", node, !want)
		}
	}
	if virtual := (train.Attempt{Number: 1, Node: "m-1", Machine: "m"}); !on(virtual, "m") || on(virtual, "m-2") || on(train.Attempt{Node: "a"}, "a") {
		t.Error("an attempt of a machine that is several nodes, or none")
	}
}
