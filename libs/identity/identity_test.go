package identity

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// The server takes the accounts as they are printed.
func TestAServerTakesTheAccounts(t *testing.T) {
	keys := KeysOf(t.TempDir())
	if err := keys.Make(); err != nil {
		t.Fatal(err)
	}
	text, err := keys.Accounts()
	if err != nil {
		t.Fatal(err)
	}
	var o server.Options
	if err := o.ProcessConfigString(text); err != nil {
		t.Fatal(err)
	}
	if len(o.Nkeys) != len(Roles()) || len(o.Accounts) != 2 {
		t.Errorf("%d keys in %d accounts, want %d in 2", len(o.Nkeys), len(o.Accounts), len(Roles()))
	}
}
