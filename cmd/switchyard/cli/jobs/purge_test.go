package jobs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestPurge(t *testing.T) {
	s := clitest.New(t, Commands()...)
	data := t.TempDir()
	now := time.Now()
	write := func(path ...string) {
		t.Helper()
		file := filepath.Join(append([]string{data, "jobs"}, path...)...)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("twelve bytes"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old, fresh := now.Add(-40*24*time.Hour), now.Add(-time.Hour)
	for id, ended := range map[train.JobID]time.Time{"old": old, "held": old, "fresh": fresh, "runs": {}} {
		state := train.StateSucceeded
		if ended.IsZero() {
			state = train.StateRunning
		}
		clitest.PutJob(t, s.Bus, train.Job{ID: id, State: state, FinishedAt: ended})
		write(string(id), "output.log")
		write(string(id), "work", "x")
		write(string(id), "snapshots", "uuid", "model")
	}
	write("held", "attempts", "1", "claim")
	write("unknown-new", "output.log")
	write("unknown-old", "output.log")
	if err := os.Chtimes(filepath.Join(data, "jobs", "unknown-old"), old, old); err != nil {
		t.Fatal(err)
	}
	files := func() string {
		var all []string
		for _, pattern := range []string{"*/*", "*/snapshots/*/*"} {
			found, err := filepath.Glob(filepath.Join(data, "jobs", pattern))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, found...)
		}
		slices.Sort(all)
		return strings.ReplaceAll(strings.Join(all, " "), filepath.Join(data, "jobs")+"/", "")
	}
	before := files()
	code, out, errs := s.Run("purge", "--data-dir", data, "--dry-run")
	if code != exit.OK || !strings.Contains(out, "of 2 jobs would be removed") || files() != before {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	code, out, errs = s.Run("purge", "--data-dir", data, "-o", "json")
	all := clitest.Parse[[]purged](t, out)
	if code != exit.OK || len(all) != 2 || all[0].Job != "old" || all[0].Freed != 24 || all[1].Job != "unknown-old" || all[1].Freed != 12 {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	var want []string
	for f := range strings.FieldsSeq(before) {
		if (!strings.HasPrefix(f, "old/") || strings.HasPrefix(f, "old/snapshots")) && !strings.HasPrefix(f, "unknown-old/") {
			want = append(want, f)
		}
	}
	if got := files(); got != strings.Join(want, " ") {
		t.Errorf("there is %s, want %s", got, want)
	}
	if code, out, _ := s.Run("purge", "--data-dir", data, "--snapshots"); code != exit.OK || strings.Contains(files(), "old/snapshots") || !strings.Contains(out, "of 1 job removed") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if _, err := os.Stat(filepath.Join(data, "jobs", "old")); err == nil {
		t.Error("an empty folder stays")
	}
	if code, _, _ := s.Run("purge", "--data-dir", data, "--keep", "1m"); code != exit.Usage {
		t.Errorf("exit code %d for folders that somebody may still need", code)
	}
	if code, out, _ := s.Run("purge", "--data-dir", filepath.Join(data, "none")); code != exit.OK || !strings.Contains(out, "0 jobs removed") {
		t.Errorf("exit code %d where no job ever ran: %s", code, out)
	}
}
