package nodeagent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bustest"
)

// TestAFullDiskIsInTheRecordOfTheNode, until there is room again.
func TestAFullDiskIsInTheRecordOfTheNode(t *testing.T) {
	t.Parallel()
	server := bustest.Start(t)
	b := bustest.Connect(t, server, "test")
	dir := bustest.SmallDisk(t, "40")
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 38<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, server.URL(), dir)
	first := node(t, b, time.Time{})
	if !strings.Contains(first.DiskTrouble, "the disk of "+dir+" has ") {
		t.Errorf("on a full disk: %q", first.DiskTrouble)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for last := first; last.DiskTrouble != ""; {
		last = node(t, b, last.SeenAt)
	}
}
