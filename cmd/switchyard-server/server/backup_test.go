package server

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bustest"
)

// A file that cannot be made is no damage of the bus.
func TestABackupThatHasNoFolderSaysSo(t *testing.T) {
	var out bytes.Buffer
	path := filepath.Join(t.TempDir(), "nowhere", "x.tar")
	code := Main([]string{"switchyard", "backup", "--nats", bustest.Start(t).URL(), path}, &out, &out)
	if code != 1 || !strings.Contains(out.String(), "no such file or directory\n  fix: name a file in a folder that exists and has room") {
		t.Errorf("exit %d: %s", code, out.String())
	}
}
