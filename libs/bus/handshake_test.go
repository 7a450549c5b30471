package bus_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/build"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
)

// TestAnotherVersionIsRefusedWithASentence plays bus and program of different versions: for who makes the streams, for
// a service that may make none, for the agent of another machine, and for the command line.
func TestAnotherVersionIsRefusedWithASentence(t *testing.T) {
	keys := identity.KeysOf(t.TempDir())
	if err := errors.Join(keys.Make(), keys.AddNode("n1")); err != nil {
		t.Fatal(err)
	}
	accounts, err := keys.Accounts()
	if err != nil {
		t.Fatal(err)
	}
	server, err := busserver.Start(busserver.Options{Dir: t.TempDir(), Accounts: accounts})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	alone := t.TempDir()
	key, err := os.ReadFile(filepath.Join(string(keys), "planner.nk"))
	if err == nil {
		err = os.WriteFile(filepath.Join(alone, "planner.nk"), key, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	operator := bustest.ConnectWith(t, bus.Config{URL: server.URL(), Name: "cli", Keys: string(keys)})
	planner := bustest.ConnectWith(t, bus.Config{URL: server.URL(), Name: "planner", Keys: alone})
	agent := bustest.ConnectWith(t, bus.Config{URL: server.URL(), Name: identity.Agent, Keys: filepath.Join(string(keys), "nodes", "n1")})
	for _, c := range []struct {
		name, mark, want string
		// raised reports that who makes the streams catches up with this program.
		raised bool
	}{
		{"newer records", "facts v1, records v9, v9.0.0", "speaks facts v1 and records v9, as switchyard v9.0.0 does: upgrade this program", false},
		{"newer facts", "facts v9, records v1, v9.0.0", "speaks facts v9 and records v1, as switchyard v9.0.0 does: upgrade this program", false},
		{"older records", "facts v1, records v0, v0.0.1", "upgrade the bus at", true},
		{"the first release", "", "", true},
		{"what nobody wrote", "nonsense", "", true},
		{"another program that speaks the same", "facts v1, records v1, v1.9.0", "", true},
	} {
		if err := operator.Mark(t.Context(), event.StreamJobs, "switchyard-contract", c.mark); err != nil {
			t.Fatal(err)
		}
		for role, b := range map[string]*bus.Bus{"service": planner, "agent": agent, "client": operator} {
			err := b.Agree(t.Context())
			if role != "client" && err == nil {
				err = b.Ensure(t.Context())
			}
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, build.ErrOther) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s, %s: %v, want %q", c.name, role, err, c.want)
			}
		}
		if err := operator.Ensure(t.Context()); (err == nil) != c.raised {
			t.Errorf("%s: who makes the streams: %v", c.name, err)
		}
	}
}

// TestAProgramStopsWorkWhenANewerOneTakesOver: what runs reads nothing more that it does not understand.
func TestAProgramStopsWorkWhenANewerOneTakesOver(t *testing.T) {
	t.Parallel()
	s := &site{t: t, dir: t.TempDir()}
	s.open()
	defer s.close()
	if err := s.bus.Ready(); err != nil {
		t.Fatal(err)
	}
	s.bus.Heed(s.guard)
	if err := s.bus.Mark(t.Context(), event.StreamJobs, "switchyard-contract", "facts v1, records v9, v9.0.0"); err != nil {
		t.Fatal(err)
	}
	s.until("it works no more", func() bool { return errors.Is(s.bus.Ready(), build.ErrOther) })
}
