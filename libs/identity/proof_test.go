package identity_test

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/identity"
)

// A key that was replaced proves what was stored before, and nothing else.
func TestAReplacedKeyProvesTheOldFacts(t *testing.T) {
	keys := identity.KeysOf(t.TempDir())
	if err := keys.Make(); err != nil {
		t.Fatal(err)
	}
	asked := identity.Request{Person: "ann", Subject: "s", Key: "k"}
	old, err := keys.Voucher("web")
	if err != nil {
		t.Fatal(err)
	}
	proof, err := old.Sign(asked, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	if err := errors.Join(os.Remove(keys.File("web")), keys.Make()); err != nil {
		t.Fatal(err)
	}
	roster, err := keys.Roster()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := roster.Check(asked, proof, before); err != nil {
		t.Errorf("what was stored before: %v", err)
	}
	if _, err := roster.Check(asked, proof, time.Now()); !errors.Is(err, identity.ErrUnproven) {
		t.Errorf("what was stored after: %v", err)
	}
	fresh, err := keys.Voucher("web")
	if err != nil {
		t.Fatal(err)
	}
	if proof, err = fresh.Sign(asked, time.Now()); err != nil {
		t.Fatal(err)
	}
	if role, err := roster.Check(asked, proof, time.Now()); role != "web" || err != nil {
		t.Errorf("the new key: %q, %v", role, err)
	}
}

// A proof is of its hour: what a server that has forgotten a request's key would store again proves nothing.
func TestAProofIsOfItsHour(t *testing.T) {
	keys := identity.KeysOf(t.TempDir())
	if err := keys.Make(); err != nil {
		t.Fatal(err)
	}
	web, err := keys.Voucher("web")
	if err != nil {
		t.Fatal(err)
	}
	roster, err := keys.Roster()
	if err != nil {
		t.Fatal(err)
	}
	asked, now := identity.Request{Person: "ann", Subject: "s", Key: "k"}, time.Now()
	proof, err := web.Sign(asked, now)
	if err != nil {
		t.Fatal(err)
	}
	for stored, counts := range map[time.Duration]bool{0: true, 50 * time.Minute: true, -50 * time.Minute: true, identity.KeysKept: false, -identity.KeysKept: false, 1000 * time.Hour: false} {
		if _, err := roster.Check(asked, proof, now.Add(stored)); errors.Is(err, identity.ErrUnproven) == counts {
			t.Errorf("stored %s after the signature: %v", stored, err)
		}
	}
	// The time is signed, too.
	role, signature := proof[:len("web ")], proof[strings.LastIndex(proof, " "):]
	later := now.Add(identity.KeysKept)
	if _, err := roster.Check(asked, role+strconv.FormatInt(later.Unix(), 10)+signature, later); !errors.Is(err, identity.ErrUnproven) {
		t.Errorf("with another time: %v", err)
	}
}

// Whatever a stranger writes, no proof is taken for web's but web's own.
func FuzzProof(f *testing.F) {
	keys := identity.KeysOf(f.TempDir())
	if err := keys.Make(); err != nil {
		f.Fatal(err)
	}
	roster, err := keys.Roster()
	if err != nil {
		f.Fatal(err)
	}
	web, err := keys.Voucher("web")
	if err != nil {
		f.Fatal(err)
	}
	asked := identity.Request{Person: "ann", Door: "socket", Subject: "yard.job.x.cancel_requested.v1", Key: "job/x/cancel", Body: []byte(`{}`)}
	proof, err := web.Sign(asked, time.Now())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(proof, "ann", "socket", "yard.job.x.cancel_requested.v1", "job/x/cancel", []byte(`{}`))
	f.Add("web AAAA", "ann", "", "", "", []byte(nil))
	f.Add("nodeagent", "", `","`, "]", "", []byte(`x`))
	f.Fuzz(func(t *testing.T, p, person, door, subject, key string, body []byte) {
		r := identity.Request{Person: person, Door: door, Subject: subject, Key: key, Body: body}
		role, err := roster.Check(r, p, time.Now())
		same := person == asked.Person && door == asked.Door && subject == asked.Subject && key == asked.Key && string(body) == string(asked.Body)
		if err == nil && (!same || role != "web") {
			t.Errorf("%q proves %+v of %s", p, r, role)
		}
		if p == proof && same && err != nil {
			t.Error(err)
		}
	})
}
