package prepare

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/jobfiles"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// A job that continues another one of its user gets what that has saved, and through no link that its program has made
// what belongs to others.
func TestACopyLeadsToNobodyElsesFiles(t *testing.T) {
	for what, c := range map[string]struct {
		links  map[string]string // in bob-1's folder, to a place in the data folder
		copied bool
	}{
		"as it was":                     {nil, true},
		"its checkpoints are a link":    {map[string]string{"snapshots/5ec7e7": "jobs/ann-1"}, false},
		"a link beside its checkpoints": {map[string]string{"snapshots/other": "jobs/ann-1", "snapshots/5ec7e7/in": "jobs/ann-1"}, true},
		"a link in its working folder":  {map[string]string{"work/ckpt": "jobs/ann-1"}, false},
	} {
		t.Run(what, func(t *testing.T) {
			p := preparer(t)
			own := p.Job("bob-1")
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			place := func(path, text string) {
				t.Helper()
				must(errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)))
			}
			place(filepath.Join(p.Job("ann-1"), "token"), "secret")
			place(filepath.Join(own, "snapshots", "5ec7e7", "model.pt"), "weights")
			place(filepath.Join(own, "work", "ckpt", "token"), "weights")
			must(jobfiles.Link(p.Layout, "bob-1", filepath.Join(own, "snapshots", "5ec7e7"), ""))
			for link, to := range c.links {
				must(os.RemoveAll(filepath.Join(own, link)))
				must(os.Symlink(filepath.Join(p.DataDir, to), filepath.Join(own, link)))
			}
			s := launch.Setting{Job: "bob-2", Capability: "c0ffee"}
			s.Spec.Continue, s.Spec.Checkpoint = "bob-1", "ckpt/token"
			err := p.copyCheckpoints(t.Context(), s)
			found := map[string]string{}
			must(filepath.WalkDir(p.Job("bob-2"), func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.Type().IsRegular() {
					text, _ := os.ReadFile(path)
					found[strings.TrimPrefix(path, p.Job("bob-2")+"/")] = string(text)
				}
				return err
			}))
			for path, text := range found {
				if strings.Contains(text, "secret") {
					t.Errorf("%s is ann's", path)
				}
			}
			if c.copied && (err != nil || found["snapshots/c0ffee/model.pt"] != "weights" || found["work/ckpt/token"] != "weights") {
				t.Errorf("%v, %v", found, err)
			}
		})
	}
}

// What is in the job's new folders before it starts, such as a link in a folder that its user named, is not written
// through.
func TestACopyIsWrittenIntoTheJobsFoldersAlone(t *testing.T) {
	p := preparer(t)
	saved, key := filepath.Join(p.Snapshots("bob-1"), "5ec7e7"), filepath.Join(p.DataDir, "key")
	shared := t.TempDir()
	into := filepath.Join(shared, "c0ffee")
	err := errors.Join(
		installation.MakeFolder(saved), os.WriteFile(filepath.Join(saved, "model.pt"), []byte("weights"), 0o600), os.WriteFile(key, []byte("key"), 0o600),
		jobfiles.Link(p.Layout, "bob-1", saved, ""), os.Mkdir(into, 0o700), os.Symlink(key, filepath.Join(into, "model.pt")),
	)
	if err != nil {
		t.Fatal(err)
	}
	s := launch.Setting{Job: "bob-2", Capability: "c0ffee"}
	s.Spec.Continue, s.Spec.SnapshotsDir = "bob-1", shared
	if err := p.copyCheckpoints(t.Context(), s); err == nil {
		t.Error("the copy took the place of a link")
	}
	if text, _ := os.ReadFile(key); string(text) != "key" {
		t.Errorf("%q was written over the key", text)
	}
}
