package admission

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/fit"
)

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
	got := folders{roots: []string{inside, inside + "/.", filepath.Join(real, "no root"), "relative"}}.resolve("j", spec)
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
	f := folders{roots: []string{filepath.Join(real, "in")}, data: installation.Layout{DataDir: data}}
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
		if diff := cmp.Diff(want, folders{}.resolve("j", train.Spec{DataURL: address}).Data); diff != "" {
			t.Errorf("%s: %s", address, diff)
		}
	}
}
