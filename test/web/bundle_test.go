package web

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/register"
	"github.com/switchyard-dl/switchyard/services/planner/history"
)

// recorded is what `switchyard bundle` wrote of an installation with two simulated GPUs: three trainings with epochs, a
// job that failed, one that was cancelled, one that runs on both devices, and one that waits for them.
const recorded = "testdata/recorded.tar.gz"

// replay puts a bundle on the bus: the facts as they were published, the records that follow, nodes and models.
func (a *alone) replay(path string) history.History {
	a.t.Helper()
	file, err := os.Open(path)
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	h, err := history.ReadBundle(file, 0)
	if err != nil {
		a.t.Fatal(err)
	}
	jobs := map[train.JobID]train.Job{}
	for _, f := range h.Facts {
		fact := a.publish(f)
		id := train.JobID(fact.Subject.ID)
		job, known := jobs[id]
		if !known {
			job.ID = id
		}
		if jobs[id], err = register.Fold(job, register.Fact{Name: fact.Subject.Fact, Time: f.Time, Sequence: f.Sequence, Body: fact.Body}); err != nil {
			a.t.Fatal(err)
		}
	}
	for _, f := range h.Plans {
		a.publish(f)
	}
	for id, job := range jobs {
		put(a.t, a.bus, contract.Jobs, string(id), job)
	}
	for _, n := range h.Nodes {
		put(a.t, a.bus, contract.Nodes, string(n.ID), n)
	}
	for _, m := range h.Models {
		put(a.t, a.bus, contract.Models, string(m.Job), m)
	}
	return h
}

// publish publishes a recorded fact as its service did.
func (a *alone) publish(f history.Fact) event.Fact {
	a.t.Helper()
	subject, err := event.ParseSubject(f.Subject)
	if err != nil {
		a.t.Fatal(err)
	}
	kind, known := event.Find(subject)
	if !known {
		a.t.Fatalf("%s: no such fact", f.Subject)
	}
	body, err := event.DecodeBody(kind, f.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	fact := event.Fact{Subject: subject, Key: f.Key, Time: f.Time, Source: f.Source, Body: body}
	if err := a.bus.Publish(a.ctx, fact); err != nil {
		a.t.Fatal(err)
	}
	return fact
}

// Every page shows a recorded history as it was, whatever else is missing: the agents are away, and nobody answers what
// the planner or an executor would.
func TestEveryPageShowsARecordedBundle(t *testing.T) {
	a, s := openAlone(t)
	h := a.replay(recorded)
	a.start()
	s.open(a.link())
	node := string(h.Nodes[0].ID)
	s.shows("Yard", "The agent of node "+node+" is away", "gpu:0", "gpu:1", "live")
	s.at("#/jobs")
	s.shows("steady", "urgent", "broken", "unwanted", "patient", "waits", "succeeded", "failed", "cancelled", "running", "queued")
	s.at("#/jobs?state=failed")
	s.shows(fmt.Sprintf("1 of %d", jobsOf(h)), "broken")
	s.at("#/jobs/broken")
	s.shows("Why", "Timeline", "the program ended with status 3", "Run again")
	s.at("#/jobs/steady")
	s.shows("Timeline", "30 of 30", "100 %")
	s.at("#/jobs/waits")
	s.shows("needs 2", "What if")
	s.press("Ask the planner")
	s.shows("planner")
	s.at("#/plan")
	s.shows("by switchyard", "Who holds what, and why", "patient", "What this plan changes")
	s.at("#/experiments")
	s.shows("No search has been started")
	s.at("#/energy")
	s.shows("No hour of these days is in the ledger yet.")
	s.at("#/network")
	s.shows("No node probes the network")
	if text := s.text(); strings.Contains(text, "undefined") || strings.Contains(text, "NaN") {
		t.Errorf("the page says:\n%s", text)
	}
}

// jobsOf counts the jobs of a history.
func jobsOf(h history.History) int {
	ids := map[string]bool{}
	for _, f := range h.Facts {
		subject, _ := event.ParseSubject(f.Subject)
		ids[subject.ID] = true
	}
	return len(ids)
}
