package admission

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	got := resolve(spec, []string{inside, inside + "/.", filepath.Join(real, "no root"), "relative"})
	want := fit.Paths{
		Roots: []string{inside}, CustomDir: fit.Path{Resolved: inside, IsFolder: true}, SnapshotsDir: fit.Path{Resolved: outside, IsFolder: true},
		DatasetsDir: fit.Path{Fault: "does not exist on this machine"}, WorkDir: fit.Path{Fault: "EvalSymlinks: too many links"},
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
