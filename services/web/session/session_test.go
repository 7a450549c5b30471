package session_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/services/web/session"
)

func TestALinkOpensOneSession(t *testing.T) {
	now, ann := time.Unix(1e9, 0), session.Who{Name: "ann"}
	b := session.New()
	b.Link("token", ann, now)
	if _, ok := b.Redeem("other", "thief", now); ok {
		t.Error("a token that nobody made opens a session")
	}
	if who, ok := b.Redeem("token", "cookie", now.Add(session.LinkLife-1)); !ok || who != ann {
		t.Errorf("the link opens a session of %+v, %v", who, ok)
	}
	if _, ok := b.Redeem("token", "again", now); ok {
		t.Error("a link works twice")
	}
	b.Link("late", ann, now)
	if _, ok := b.Redeem("late", "late", now.Add(session.LinkLife)); ok {
		t.Error("a link works after its time")
	}
	for cookie, want := range map[string]bool{"cookie": true, "token": false, "thief": false, "again": false, "late": false, "": false} {
		if _, ok := b.Find(cookie, now); ok != want {
			t.Errorf("the cookie %q is a session: %v, want %v", cookie, ok, want)
		}
	}
}

func TestSessionsOutliveAProcessAndEnd(t *testing.T) {
	now, owner := time.Unix(1e9, 0), session.Who{Owner: true}
	b := session.New()
	b.Link("token", owner, now)
	b.Redeem("token", "cookie", now)
	b.Link("open", owner, now)
	data, err := b.Encode()
	if err != nil || strings.Contains(string(data), "cookie") {
		t.Fatalf("%s, %v", data, err)
	}
	b, err = session.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if who, ok := b.Find("cookie", now.Add(session.Life-1)); !ok || who != owner {
		t.Errorf("%+v, %v", who, ok)
	}
	if _, ok := b.Find("cookie", now.Add(session.Life)); ok {
		t.Error("a session does not end by itself")
	}
	if _, ok := b.Redeem("open", "x", now); ok {
		t.Error("a link outlives its process")
	}
	b.End("cookie")
	if _, ok := b.Find("cookie", now); ok {
		t.Error("a session cannot be ended")
	}
	if _, err := session.Decode([]byte("[]")); err == nil {
		t.Error("reads anything")
	}
}

func TestTheNumberOfLinksIsBounded(t *testing.T) {
	now, b := time.Unix(1e9, 0), session.New()
	for i := range 1001 {
		b.Link(fmt.Sprint(i), session.Who{Owner: true}, now.Add(time.Duration(i)))
	}
	for token, want := range map[string]bool{"0": false, "1": true, "1000": true} {
		if _, ok := b.Redeem(token, "c", now); ok != want {
			t.Errorf("link %s: %v, want %v", token, ok, want)
		}
	}
}
