package proxy

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A link that a job makes in its folder tells nothing of the data folder: no names, no numbers. A link to another
// folder of its user is followed.
func TestALinkTellsNothingOfTheDataFolder(t *testing.T) {
	data, scratch := t.TempDir(), t.TempDir()
	work, theirs := filepath.Join(data, "jobs", "bob-1", "work"), filepath.Join(data, "jobs", "ann-1", "work")
	table := []byte("epoch,loss\n1,0.5\n")
	err := errors.Join(
		os.MkdirAll(work, 0o700), os.MkdirAll(theirs, 0o700), os.WriteFile(filepath.Join(theirs, "secret.csv"), table, 0o600),
		os.WriteFile(filepath.Join(scratch, "own.csv"), table, 0o600), os.WriteFile(filepath.Join(work, "in.csv"), table, 0o600),
		os.Symlink(theirs, filepath.Join(work, "theirs")), os.Symlink(scratch, filepath.Join(work, "scratch")),
	)
	if err != nil {
		t.Fatal(err)
	}
	sight := Sight{Hidden: data, Kept: []string{work}}
	for pattern, want := range map[string]bool{"theirs/*": false, "theirs/secret.csv": false, "scratch/*": true, "*.csv": true} {
		patterns := []string{filepath.Join(work, pattern)}
		if HasCheckpoint(sight, patterns) != want {
			t.Errorf("a checkpoint %s is found: %t, want %t", pattern, !want, want)
		}
		found := false
		tail := tails{Sight: sight, patterns: patterns, offsets: map[string]int64{}}
		tail.next(func(string, []byte) int64 { found = true; return 0 })
		if found != want {
			t.Errorf("a table %s is read: %t, want %t", pattern, found, want)
		}
	}
	if f, err := sight.open(filepath.Join(work, "theirs", "secret.csv")); err == nil {
		t.Errorf("%s is opened", f.Name())
	}
}
