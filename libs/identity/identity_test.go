package identity_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
)

// Every role tries to publish every fact, to write into every bucket and to change streams, on a real server.
func TestEachRolePublishesItsOwnAndNothingElse(t *testing.T) {
	server, keys := bustest.StartGuarded(t)
	for _, role := range identity.Roles() {
		key, err := nats.NkeyOptionFromSeed(keys.File(role))
		if err != nil {
			t.Fatal(err)
		}
		nc, err := nats.Connect(server.URL(), key, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		for subject, may := range expected(role) {
			if got := published(t, nc, subject); got != may {
				t.Errorf("%s publishes %s: %v, want %v", role, subject, got, may)
			}
		}
	}
}

// published reports whether the server took a message. It answers what follows a refused one after the refusal.
func published(t *testing.T, nc *nats.Conn, subject string) bool {
	t.Helper()
	if err := errors.Join(nc.Publish(subject, []byte("{}")), nc.Flush()); err != nil {
		t.Fatal(err)
	}
	err := nc.LastError()
	return err == nil || !strings.Contains(err.Error(), `"`+subject+`"`)
}

// expected are subjects, and whether a role may publish on them, read from the tables by their documented meaning.
func expected(role string) map[string]bool {
	all, service := role == identity.Operator, slices.Contains(identity.Services(), role)
	asks := slices.Contains([]string{identity.User, "admission", "experiments", "web"}, role)
	subjects := map[string]bool{
		"$JS.API.STREAM.DELETE.JOBS": all, "$JS.API.STREAM.PURGE.JOBS": all, "$JS.API.STREAM.CREATE.X": all, "$JS.API.STREAM.UPDATE.JOBS": all,
		"$JS.API.STREAM.MSG.DELETE.JOBS": all, "$JS.API.STREAM.RESTORE.X": all, "$JS.API.STREAM.SNAPSHOT.JOBS": all, "$SYS.REQ.SERVER.PING": all,
		"$JS.API.DIRECT.GET.JOBS.yard.job.x.failed.v1": all || service, "$JS.API.STREAM.INFO.JOBS": all || service,
		"switchyard.executor.n1.terminal": all || role == "web", "switchyard.admission.candidate": all || role == "web", "switchyard.bus.trouble": all || service, "switchyard.changes.attempts.x": all, "switchyard.executor.n1.logs": all || role == "web", "switchyard.executor.n1.files": all || role == "web", "switchyard.planner.whatif": all, "switchyard.planner.outlook": all || role == "web", "switchyard.planner.pods": all || role == "web", "switchyard.experiments.suggest": all || role == "web",
		"$O.uploads.C.x": all || role == "admission" || role == "web", "yard.job.x.frobnicated.v1": all, "anything": all,
	}
	for _, k := range event.Kinds() {
		subject := event.Subject{Entity: k.Entity, ID: "x", Fact: k.Fact, Version: k.Version}.String()
		subjects[subject] = all || k.Publisher == role || k.Publisher == identity.Agent && role == "admission" || k.Publisher == event.Anyone && asks || k.Publisher == event.AnyService && service || k.Publisher == event.Operators && role == "web"
	}
	for _, k := range contract.Buckets() {
		mine := slices.ContainsFunc(k.Records, func(r contract.Record) bool { return r.Writer == role })
		subjects["$KV."+k.Name+".x"] = all || mine
	}
	subjects["$KV.leases."+role] = all || service
	if role == "planner" { // it deletes the nodes that operators remove
		subjects["$KV."+string(contract.Nodes)+".x"] = true
	}
	return subjects
}
