package admission

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/look"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/fit"
)

// looking returns folders below roots, as they are on this machine.
func looking(roots ...string) folders {
	return folders{roots: roots, looks: look.New(inspect)}
}

func TestResolve(t *testing.T) {
	b := t.TempDir()
	real, err := filepath.EvalSymlinks(b)
	if err != nil {
		t.Fatal(err)
	}
	inside, outside := filepath.Join(real, "in"), filepath.Join(real, "out")
	for _, dir := range []string{inside, outside} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(inside, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(inside, "loop"), filepath.Join(inside, "loop")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(inside, "a.py"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	spec := train.Spec{CustomDir: inside, SnapshotsDir: filepath.Join(inside, "link"), DatasetsDir: filepath.Join(inside, "none"), WorkDir: filepath.Join(inside, "loop"), ScriptPath: "/custom/a.py"}
	got := looking(inside, inside+"/.", filepath.Join(real, "no root"), "relative").resolve("j", spec)
	want := fit.Paths{
		Roots: []string{inside}, CustomDir: fit.Path{Resolved: inside, IsFolder: true}, SnapshotsDir: fit.Path{Resolved: outside, IsFolder: true},
		DatasetsDir: fit.Path{Resolved: filepath.Join(inside, "none"), Fault: "does not exist on this machine"}, WorkDir: fit.Path{Resolved: filepath.Join(inside, "loop"), Fault: "EvalSymlinks: too many links"},
		Script: fit.Path{Resolved: filepath.Join(inside, "a.py")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	for _, tc := range []struct{ image, script, want string }{
		{"", "/opt/a.py", "/opt/a.py"},
		{"", "a.py", ""},
		{"torch:2", "/opt/a.py", ""},
		{"torch:2", "/custom/../custom/x.py", inside + "/x.py"},
		{"", "/snapshots/x.py", outside + "/x.py"},
	} {
		spec.Image, spec.ScriptPath = tc.image, tc.script
		if found := onHost(spec, want); found != tc.want {
			t.Errorf("%s in image %q is %q, want %q", tc.script, tc.image, found, tc.want)
		}
	}
	if found := onHost(train.Spec{ScriptPath: "/custom/x.py"}, fit.Paths{}); found != "" {
		t.Errorf("found %q without custom_dir", found)
	}
}

// A path is one answer if it leads out of the allowed folders, whatever is there: otherwise links in an allowed folder
// would show what files the scheduler can see. The data folder is none of a job's folders, except for its own.
func TestWhatLiesOutsideIsNotTold(t *testing.T) {
	real, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(real, "in", "data")
	for _, dir := range []string{"in/data/jobs/j/snapshots", "in/data/jobs/j/attempts/1", "in/data/jobs/other/work", "in/database", "out/folder"} {
		if err := os.MkdirAll(filepath.Join(real, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"to-folder": "../out/folder", "to-file": "../out/file", "to-none": "../out/none/x", "to-data": "data", "to-shut": "/root/.ssh"} {
		if err := os.Symlink(to, filepath.Join(real, "in", name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(real, "out", "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := looking(filepath.Join(real, "in"))
	f.data.DataDir = data
	for path, want := range map[string]string{
		"out": "OutsideRoots", "out/folder": "OutsideRoots", "out/file": "OutsideRoots", "out/none": "OutsideRoots",
		"in/to-folder": "OutsideRoots", "in/to-file": "OutsideRoots", "in/to-none": "OutsideRoots", "in/to-shut": "OutsideRoots", "in/none": "NoSuchFolder", "in/database": "",
		"in": "DataFolder", "in/to-data": "DataFolder", "in/data": "DataFolder", "in/data/jobs/other/work": "DataFolder", "in/data/jobs/j": "DataFolder", "in/data/jobs/j/attempts/1": "DataFolder",
		"in/data/jobs/j/snapshots": "",
	} {
		spec := train.Spec{Name: "x", Command: []string{"true"}, CustomDir: filepath.Join(real, path)}
		var codes []string
		for _, r := range fit.Check(spec, fit.Identity{User: "ann", Tenant: "t"}, fit.Inventory{}, f.resolve("j", spec)).Reasons {
			codes = append(codes, r.Code)
			if r.Code == "OutsideRoots" && r.Message != strconv.Quote(spec.CustomDir)+" lies outside the allowed folders" {
				t.Errorf("%s: %s", path, r.Message)
			}
		}
		if got := strings.Join(codes, " "); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestAddressesAreResolved(t *testing.T) {
	real, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	set, link := filepath.Join(real, "a set"), filepath.Join(real, "link")
	if err := errors.Join(os.Mkdir(set, 0o700), os.Symlink(set, link)); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]fit.Address{
		"":                               {},
		"http://[":                       {},
		"https://me:p@example.org/a?b=c": {Scheme: "https", Host: "example.org", Path: "/a", Named: true},
		"file://" + link:                 {Scheme: "file", Path: link, File: fit.Path{Resolved: set, IsFolder: true}, Resolved: "file://" + real + "/a%20set"},
	} {
		if diff := cmp.Diff(want, looking().resolve("j", train.Spec{DataURL: address}).Data); diff != "" {
			t.Errorf("%s: %s", address, diff)
		}
	}
}

// hanging inspects paths, and does not return for those below a folder until the test ends.
func hanging(t *testing.T, below string) func(string) fit.Path {
	t.Helper()
	back := make(chan struct{})
	t.Cleanup(func() { close(back) })
	return func(path string) fit.Path {
		if strings.HasPrefix(path, below) {
			<-back
		}
		return inspect(path)
	}
}

// Folders of a file server that does not answer, and a root that is its, refuse the jobs in them only.
func TestARootThatHangsRefusesWhatLiesInIt(t *testing.T) {
	synctest.Test(t, refusesWhatLiesInIt)
}

func refusesWhatLiesInIt(t *testing.T) {
	real, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := folders{roots: []string{real, "/away"}, looks: look.New(hanging(t, "/away"))}
	for _, tc := range []struct {
		spec train.Spec
		want string
	}{
		{train.Spec{CustomDir: "/away/code", SnapshotsDir: "/away/saved", DataURL: "file:///away/data"}, "FileSystemHangs FileSystemHangs FileSystemHangs"},
		{train.Spec{CustomDir: "/away/code", ScriptPath: "/custom/a.py"}, "FileSystemHangs"},
		{train.Spec{ScriptPath: "/away/a.py"}, "FileSystemHangs"},
		{train.Spec{CustomDir: real}, ""},
		{train.Spec{CustomDir: "/etc"}, "OutsideRoots"},
	} {
		tc.spec.Name = "x"
		if tc.spec.ScriptPath == "" {
			tc.spec.Command = []string{"true"}
		}
		var codes []string
		for _, r := range fit.Check(tc.spec, fit.Identity{User: "ann", Tenant: "t"}, fit.Inventory{}, f.resolve("j", tc.spec)).Reasons {
			codes = append(codes, r.Code)
		}
		if got := strings.Join(codes, " "); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.spec, got, tc.want)
		}
	}
}

// A person names a folder of a file server that does not answer. The jobs of others are admitted.
func TestAFolderThatHangsHoldsUpNobody(t *testing.T) {
	b := newBench(t)
	away := filepath.Join(b.root, "away")
	b.inspect = hanging(t, away)
	putNode(b)
	stop := b.serve()
	b.send("yard.job.hangs.submitted.v1", fmt.Sprintf(`{"name":"n","command":["true"],"custom_dir":%q}`, away))
	b.send("yard.job.fine.submitted.v1", `{"name":"n","command":["true"]}`)
	b.await("fine", inState(train.StateQueued))
	if job := b.await("hangs", inState(train.StateRejected)); !strings.Contains(job.Message, "does not answer") {
		t.Errorf("refused because %s", job.Message)
	}
	stop()
}
