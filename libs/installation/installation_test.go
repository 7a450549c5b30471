package installation_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/installation"
)

// A second installation never takes the commands of a first one that still answers; it follows one that does not.
func TestTheFirstInstallationKeepsItsCommands(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // nothing is waited for
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "first", "context.json")
	first := installation.Context{NATS: "nats://" + listener.Addr().String(), DataDir: filepath.Join(dir, "first"), PID: os.Getpid()}
	second := installation.Context{NATS: "nats://127.0.0.1:1", DataDir: filepath.Join(dir, "second"), PID: os.Getpid()}
	announce := func(c, wantOther, wantFound installation.Context) {
		t.Helper()
		other, err := installation.Announce(t.Context(), path, c)
		if err != nil || other != wantOther {
			t.Errorf("other %+v, %v, want %+v", other, err, wantOther)
		}
		if found, err := installation.ReadContext(path); err != nil || found != wantFound {
			t.Errorf("commands find %+v, %v, want %+v", found, err, wantFound)
		}
		if own, err := installation.ReadContext(filepath.Join(c.DataDir, "context.json")); err != nil || own != c {
			t.Errorf("in its own folder %+v, %v, want %+v", own, err, c)
		}
	}
	announce(first, installation.Context{}, first)
	announce(second, first, first)
	_ = listener.Close()
	announce(second, installation.Context{}, second)
}
