package proxy

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestACheckpointIsCompleteOnceItStands: also if a newer file is always being written, and not before.
func TestACheckpointIsCompleteOnceItStands(t *testing.T) {
	dir := t.TempDir()
	at := time.Now().Add(-time.Hour)
	save := func(name, text string) {
		t.Helper()
		at = at.Add(time.Second)
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	c := checkpoints{patterns: []string{filepath.Join(dir, "model-*.params")}}
	c.begin()
	for _, step := range []struct{ writes, text, want string }{
		{"model-0001.params", "half", ""},
		{"model-0001.params", "whole", ""},
		{"model-0002.params", "half", "model-0001.params"},
		{"model-0003.params", "half", "model-0002.params"},
		{"model-0003.params", "whole", ""},
		{"", "", "model-0003.params"},
		{"", "", ""},
	} {
		if step.writes != "" {
			save(step.writes, step.text)
		}
		found, fresh := c.look()
		if fresh != (step.want != "") || fresh && filepath.Base(found.path) != step.want {
			t.Errorf("after %q of %q: found %q, %v; want %q", step.text, step.writes, found.path, fresh, step.want)
		}
	}
}
