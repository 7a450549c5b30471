package executor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// The register has forgotten a job of another person, whose folder is still there, and its id was given again.
func TestAJobFindsNothingOfAnEarlierOneWithItsID(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	layout := installation.Layout{DataDir: y.dir}
	old := filepath.Join(layout.Snapshots("j1"), "model.pt")
	y.must(os.MkdirAll(filepath.Dir(old), 0o700))
	y.must(os.WriteFile(old, []byte("weights"), 0o600))
	y.must(os.WriteFile(layout.Output("j1"), []byte("a secret\n"), 0o600))
	y.job("j1", command(`ls -R "$(dirname "$SNAPSHOTS_DIR")"`))
	y.plan(on("j1", "cpu:0"))
	y.attempt("j1", "has ended", func(a train.Attempt) bool { return a.Phase == train.PhaseExited })
	output, err := os.ReadFile(layout.Output("j1"))
	if y.must(err); strings.Contains(string(output), "secret") || strings.Contains(string(output), "model.pt") {
		t.Errorf("the new job finds: %s", output)
	}
	aside, err := filepath.Glob(layout.Job("j1") + ".*/snapshots/model.pt")
	if err != nil || len(aside) != 1 {
		t.Errorf("the old one is kept in %v (%v)", aside, err)
	}
}
