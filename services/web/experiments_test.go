package web

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// What an experiment tries, why it was refused, and its end are matters of the person who asked for it.
func TestAnExperimentIsItsPersons(t *testing.T) {
	b := sharedBench(t)
	records, err := bus.OpenKV(b.ctx, b.bus, contract.Experiments)
	if err != nil {
		t.Fatal(err)
	}
	of := contract.Experiment{Name: "x", Job: train.Spec{User: userOf(askerUID), Command: []string{"train", "--token=hush"}}}
	if err := records.Put(b.ctx, "mine", contract.ExperimentRecord{ID: "mine", Experiment: of, State: contract.ExperimentRunning}); err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.bus.PublishOnce(b.ctx, event.StreamTune, event.TuneOnceFact("bad", event.FactSubmitted, event.ExperimentSubmitted{Experiment: body})); err != nil {
		t.Fatal(err)
	}
	if err := b.bus.Publish(b.ctx, event.TuneFact("bad", event.FactRejected, "rejected", event.Rejected{Message: "space: hush"})); err != nil {
		t.Fatal(err)
	}
	b.serve()
	for _, test := range []struct {
		uid          int
		method, path string
		status       int
		hush         bool
	}{
		{askerUID, "GET", "mine/record", http.StatusOK, true},
		{alienUID, "GET", "mine/record", http.StatusForbidden, false},
		{askerUID, "GET", "bad/record", http.StatusUnprocessableEntity, true},
		{alienUID, "GET", "bad/record", http.StatusNotFound, false},
		{askerUID, "GET", "none/record", http.StatusNotFound, false},
		{alienUID, "POST", "mine/stop_requested", http.StatusForbidden, false},
		{askerUID, "POST", "mine/stop_requested", http.StatusAccepted, false},
	} {
		b.client = connectedAs(t, test.uid, b.config.SharedSocket)
		status, said := answerOf[json.RawMessage](b, b.send(test.method, "/api/v1/experiments/"+test.path, "{}"))
		if status != test.status || strings.Contains(string(said), "hush") != test.hush {
			t.Errorf("%s asks for %s: %d %s", userOf(test.uid), test.path, status, said)
		}
	}
}
