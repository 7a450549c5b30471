package cluster

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Each request is shown with who has asked, by which door, and what became of it.
func TestTheAuditSaysWhoAskedForWhat(t *testing.T) {
	server, keys := bustest.StartGuarded(t)
	as := func(name string) *bus.Bus {
		return bustest.ConnectWith(t, bus.Config{URL: server.URL(), Name: name, Keys: string(keys)})
	}
	operator, web, admission := as("up"), as("web"), as("admission")
	of := func(person, door string, f event.Fact) event.Fact {
		f.By, f.Door = person, door
		return f
	}
	spec := event.Submitted{Spec: train.Spec{Name: "x", Command: []string{"true"}}}
	clitest.Publish(t, web,
		of("ann", "socket", event.OnceFact("good", event.FactSubmitted, "submitted", spec)),
		of("bob", "TCP", event.OnceFact("bad", event.FactSubmitted, "submitted", spec)),
		of("ann", "socket", event.JobFact("good", event.FactEditRequested, "edit/1", event.EditRequested{})),
		of("", "socket", event.JobFact("good", event.FactCancelRequested, "cancel/1", event.CancelRequested{})),
		event.Fact{
			Subject: event.Subject{Entity: event.EntityAccess, ID: "bob", Fact: event.FactRefused, Version: 1}, Key: "access/bob/refused/1",
			Body: event.AccessRefused{Person: "bob", Door: "socket", Operation: access.Cancel, Request: "POST /api/v1/jobs/good/cancel_requested", Message: "the job is ann's", Missed: 7},
		})
	clitest.Publish(t, operator, event.PeopleFact(event.EntityUser, "bob", time.Now(), event.UserSet{Role: access.Lead}))
	key, err := nats.NkeyOptionFromSeed(keys.File(identity.User))
	if err != nil {
		t.Fatal(err)
	}
	user, err := nats.Connect(server.URL(), key)
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close()
	for subject, by := range map[string]string{"yard.job.good.wanted.v1": "", "yard.job.good.cancel_requested.v1": "root"} {
		m := nats.NewMsg(subject)
		m.Data = []byte(`{"state":"held","by":"root"}`)
		if m.Header.Set(event.HeaderBy, by); by == "" {
			m.Header.Del(event.HeaderBy)
		}
		if _, err := user.RequestMsg(m, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	edited, err := operator.Last(t.Context(), event.StreamJobs, event.JobSubject("good", event.FactEditRequested))
	if err != nil {
		t.Fatal(err)
	}
	clitest.Publish(t, admission,
		event.OnceFact("bad", event.FactRejected, "rejected", event.Rejected{Reasons: []train.Reason{{Code: "QueueFull"}, {Code: "PriorityTooHigh"}}}),
		event.JobFact("good", event.FactEditDecided, "edited/1", event.EditDecided{Request: edited.Sequence, Refused: []train.Reason{{Code: "NotNow"}}}))

	run := func(args ...string) (lines []string) {
		t.Helper()
		args = append([]string{"--nats", server.URL(), "--keys", string(keys), "events", "--audit", "-o", "json"}, args...)
		code, out, stderr := clitest.Execute(Commands(), "", args...)
		if code != exit.OK {
			t.Fatalf("%v: %d %s", args, code, stderr)
		}
		var entries []contract.AuditEntry
		if err := json.Unmarshal([]byte(out), &entries); err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Time.IsZero() {
				t.Errorf("%+v has no time", e)
			}
			lines = append(lines, strings.TrimSpace(strings.Join([]string{e.Who, e.Door, e.Fact, e.Entity, e.ID, e.Outcome, e.Why}, " ")))
		}
		return lines
	}
	all := strings.Join(run(), "\n")
	for _, want := range []string{
		"ann socket submitted job good taken",
		"bob TCP submitted job bad refused QueueFull, PriorityTooHigh",
		"ann socket edit_requested job good refused NotNow",
		"owner socket cancel_requested job good taken",
		"operator bus set_requested user bob taken",
		"user.nk bus wanted job good taken",
		"? bus cancel_requested job good refused not proven",
		"bob socket cancel job good refused the job is ann's (and 7 before that are not stored)",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("the audit lacks %q:\n%s", want, all)
		}
	}
	if got := len(run()); got != 8 {
		t.Errorf("%d entries, want 8", got)
	}
	if got := run("--user", "ann"); len(got) != 2 {
		t.Errorf("of ann: %q", got)
	}
	if got := run("--job", "bad"); len(got) != 1 || !strings.HasPrefix(got[0], "bob") {
		t.Errorf("about one job: %q", got)
	}
	if got := run("--since", "1ns"); len(got) != 0 {
		t.Errorf("since now: %q", got)
	}
}
