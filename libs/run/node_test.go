package run_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/run"
)

func TestTheNodeKeepsItsIDWithTheDataFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	settle := func(node string) (string, error) {
		c, err := run.SettleNode(run.Common{DataDir: dir, Node: node})
		return c.Node, err
	}
	if got, err := settle("lab-1"); err != nil || got != "lab-1" {
		t.Fatalf("first start: %q, %v", got, err)
	}
	// The host's name is another one; the folder's node is what counts.
	if got, err := settle(""); err != nil || got != "lab-1" {
		t.Errorf("no id asked for: %q, %v, want lab-1", got, err)
	}
	if got, err := settle("lab-1"); err != nil || got != "lab-1" {
		t.Errorf("the same id: %q, %v", got, err)
	}
	if _, err := settle("lab-2"); err == nil || !strings.Contains(err.Error(), `--node "lab-2"`) || !strings.Contains(err.Error(), `belongs to node "lab-1"`) {
		t.Errorf("another id: %v, want a refusal that names both", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "node"), []byte("a/b"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := settle(""); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "node")) {
		t.Errorf("a spoilt file: %v, want it named", err)
	}
}

// The executor and the node agent start at the same time over a new folder, and must not disagree.
func TestProcessesThatStartAtOnceAgreeOnTheNode(t *testing.T) {
	dir := t.TempDir()
	ids := make([]string, 16)
	var starts conc.WaitGroup
	for i := range ids {
		starts.Go(func() {
			c, err := run.SettleNode(run.Common{DataDir: dir})
			if err != nil {
				t.Error(err)
			}
			ids[i] = c.Node
		})
	}
	starts.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("ids %q: want one for all", ids)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestTheHostsNameIsTheFirstID(t *testing.T) {
	settled, err := run.SettleNode(run.Common{DataDir: t.TempDir()})
	if err != nil || settled.NodeID() == "" {
		t.Errorf("settled %+v, %v", settled, err)
	}
}
