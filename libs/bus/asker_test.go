package bus_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// cancel is a request of a person that a connection publishes.
func cancel(id train.JobID, by string) event.Fact {
	f := event.JobFact(id, event.FactCancelRequested, "cancel", event.CancelRequested{By: by, Reason: "why"})
	f.By, f.Door = by, "socket"
	return f
}

func TestWhoAsksIsProvenOrStrange(t *testing.T) {
	server, keys := bustest.StartGuarded(t)
	config := bus.Config{URL: server.URL(), Keys: string(keys)}
	connect := func(name string) *bus.Bus {
		config.Name = name
		return bustest.ConnectWith(t, config)
	}
	reader := connect("admission")
	key, err := nats.NkeyOptionFromSeed(keys.File(identity.User))
	if err != nil {
		t.Fatal(err)
	}
	user, err := nats.Connect(server.URL(), key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(user.Close)
	newest := func(id train.JobID) (bus.Asker, string, error) {
		t.Helper()
		m, err := reader.Last(t.Context(), event.StreamJobs, event.JobSubject(id, event.FactCancelRequested))
		if err != nil {
			t.Fatal(err)
		}
		var body event.CancelRequested
		if body, err = event.Decode[event.CancelRequested](m.Data); err != nil {
			t.Fatal(err)
		}
		who, err := bus.Asked(m, &body)
		return who, body.By, err
	}
	for name, want := range map[string]struct{ person, body string }{"web": {"ann", "ann"}, "operator": {"", "me"}, "experiments": {"", "me"}} {
		f := cancel(train.JobID("of-"+name), "me")
		f.By = want.person
		if err := connect(name).Publish(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		who, by, err := newest(train.JobID("of-" + name))
		if err != nil || who.Role != name || who.Person != want.person || by != want.body {
			t.Errorf("%s publishes as %+v, %q in the body, %v", name, who, by, err)
		}
	}
	// Experiments cancels jobs, but for no person.
	if err := connect("experiments").Publish(t.Context(), cancel("named", "ann")); err != nil {
		t.Fatal(err)
	}
	if who, _, err := newest("named"); !errors.Is(err, identity.ErrUnproven) || !errors.Is(err, bus.ErrPoison) {
		t.Errorf("experiments asks as %+v: %v", who, err)
	}

	if err := connect("web").Publish(t.Context(), cancel("true", "ann")); err != nil {
		t.Fatal(err)
	}
	proven, err := reader.Last(t.Context(), event.StreamJobs, event.JobSubject("true", event.FactCancelRequested))
	if err != nil {
		t.Fatal(err)
	}
	// What user.nk says about itself is not believed, and what it says about others is refused.
	send := func(id, body string, headers map[string]string) {
		t.Helper()
		m := nats.NewMsg(event.JobSubject(train.JobID(id), event.FactCancelRequested).String())
		m.Data = []byte(body)
		for k, v := range headers {
			m.Header.Set(k, v)
		}
		if reply, err := user.RequestMsg(m, time.Minute); err != nil || strings.Contains(string(reply.Data), "error") {
			t.Fatal(err, reply)
		}
	}
	send("strange", `{"by":"ann"}`, nil)
	if who, by, err := newest("strange"); err != nil || who.Name() != bus.Stranger || by != bus.Stranger {
		t.Errorf("a user of the bus asks as %+v, %q, %v", who, by, err)
	}
	forged := map[string]map[string]string{
		"name":    {event.HeaderBy: "ann"},
		"nothing": {event.HeaderBy: "ann", event.HeaderProof: "web"},
		"junk":    {event.HeaderBy: "ann", event.HeaderProof: "web AAAA"},
		"role":    {event.HeaderBy: "ann", event.HeaderProof: "root " + strings.TrimPrefix(proven.Proof(), "web ")},
		// The proof of another request.
		"copied": {event.HeaderBy: "ann", event.HeaderDoor: "socket", event.HeaderProof: proven.Proof()},
		"keyed":  {event.HeaderBy: "ann", event.HeaderDoor: "socket", event.HeaderProof: proven.Proof(), jetstream.MsgIDHeader: proven.Key + "/2"},
		"door":   {event.HeaderDoor: "socket", event.HeaderProof: proven.Proof()},
	}
	for id, headers := range forged {
		send(id, string(proven.Data), headers)
		if who, _, err := newest(train.JobID(id)); !errors.Is(err, identity.ErrUnproven) {
			t.Errorf("%s: believed as %+v, %v", id, who, err)
		}
	}
	// The same request with another key, person or body.
	for what, headers := range map[string]map[string]string{
		"another key":    {event.HeaderBy: "ann", event.HeaderDoor: "socket", event.HeaderProof: proven.Proof(), jetstream.MsgIDHeader: "x"},
		"another person": {event.HeaderBy: "bob", event.HeaderDoor: "socket", event.HeaderProof: proven.Proof(), jetstream.MsgIDHeader: "y"},
	} {
		send("true", string(proven.Data), headers)
		if who, _, err := newest("true"); !errors.Is(err, identity.ErrUnproven) {
			t.Errorf("%s: believed as %+v, %v", what, who, err)
		}
	}
}

// Facts from before there were proofs stay as they were.
func TestWhatIsOlderThanProofsIsBelieved(t *testing.T) {
	server, keys := bustest.StartGuarded(t)
	old := bustest.ConnectWith(t, bus.Config{URL: server.URL(), Name: "web", Keys: string(keys)})
	roster, err := keys.Roster()
	if err != nil || roster.Since.IsZero() || len(roster.Keys) != len(identity.Roles()) {
		t.Fatalf("%+v, %v", roster, err)
	}
	if err := old.Publish(t.Context(), cancel("old", "ann")); err != nil {
		t.Fatal(err)
	}
	m, err := old.Last(t.Context(), event.StreamJobs, event.JobSubject("old", event.FactCancelRequested))
	if err != nil {
		t.Fatal(err)
	}
	for since, believed := range map[time.Duration]bool{time.Hour: true, -time.Hour: false} {
		who, err := m.AskerBy(&identity.Roster{Since: m.Stored.Add(since)})
		if (err == nil) != believed || believed && who.Person != "ann" {
			t.Errorf("stored %v before there were proofs: %+v, %v", since, who, err)
		}
	}
	if err := keys.Make(); err != nil {
		t.Fatal(err)
	}
	if again, err := keys.Roster(); err != nil || !again.Since.Equal(roster.Since) {
		t.Errorf("the next start moves the time: %v to %v, %v", roster.Since, again.Since, err)
	}
}
