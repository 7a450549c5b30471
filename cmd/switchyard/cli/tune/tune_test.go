package tune

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
)

// A configuration of PipeTune is copied from another machine with the BigDL file that it names there.
func TestAConfigurationFindsItsBigDLFile(t *testing.T) {
	dir := t.TempDir()
	conf := filepath.Join(dir, "pipetune.conf")
	run := func() (code int, out string) {
		code, stdout, stderr := clitest.Execute([]console.Command{Command}, "", "tune", "run", "--config", conf, "--print-event", "--id", "e")
		return code, stdout + stderr
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(conf, `{"bigdlConf": "/home/elsewhere/config/lenet.json", "hyperParameters": {"batch_size": [32, 64]}}`)
	if code, out := run(); code != exit.Usage || !strings.Contains(out, "lenet.json is neither there nor beside the configuration") {
		t.Errorf("exit code %d: %s", code, out)
	}
	write(filepath.Join(dir, "lenet.json"), `{"master": "local[2]", "conf": "/models/lenet.py", "extras": {"batch-size": "32", "maxEpoch": "5"}}`)
	if code, out := run(); code != exit.OK || !strings.Contains(out, `"/models/lenet.py"`) {
		t.Errorf("exit code %d: %s", code, out)
	}
}
