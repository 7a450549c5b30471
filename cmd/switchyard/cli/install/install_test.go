package install

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/install/units"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/sibling"
	"github.com/switchyard-dl/switchyard/libs/settings"
)

// programs makes a folder with programs that do nothing.
func programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{sibling.Server, sibling.Supervisor} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// installed installs below a folder, and returns what was said.
func installed(t *testing.T, o options) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), &out, o); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func files(t *testing.T, dir string) (found []string) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() && !strings.Contains(path, libraryDir) {
			found = append(found, strings.TrimPrefix(path, dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// What is printed is what is written; a configuration stays as it was; and all of it can be taken back.
func TestAnInstallationIsSeenDoneAndTakenBack(t *testing.T) {
	root := t.TempDir()
	o := options{user: "switchyard", group: "gpu", dataDir: "/var/lib/switchyard", root: root, programs: programs(t), print: true}
	shown := installed(t, o)
	if found := files(t, root); len(found) > 0 {
		t.Fatalf("--print has written %q", found)
	}
	o.print = false
	said := installed(t, o)
	for _, path := range []string{units.ConfigPath, units.KeyPath, filepath.Join(units.LocalUnits, units.Service), filepath.Join(units.LocalUnits, units.Launcher)} {
		data, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if path != units.KeyPath && !strings.Contains(shown, "    "+line) {
				t.Errorf("%s: --print does not show %q", path, line)
			}
		}
		if !strings.Contains(said, filepath.Join(root, path)) {
			t.Errorf("nothing is said of %s: %s", path, said)
		}
	}
	key, err := os.ReadFile(filepath.Join(root, units.KeyPath))
	if own, failed := os.ReadFile(filepath.Join(root, "/var/lib/switchyard/keys/admission.pub")); err != nil || failed != nil || !bytes.Equal(key, own) {
		t.Errorf("the launcher's key is %q, admission's %q", key, own)
	}
	if err := os.WriteFile(filepath.Join(root, units.ConfigPath), []byte("bus: {port: 4333}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	installed(t, o)
	if data, err := os.ReadFile(filepath.Join(root, units.ConfigPath)); err != nil || string(data) != "bus: {port: 4333}\n" {
		t.Errorf("the configuration was written again: %q, %v", data, err)
	}
	if again, err := os.ReadFile(filepath.Join(root, units.KeyPath)); err != nil || !bytes.Equal(again, key) {
		t.Errorf("there is another key: %v", err)
	}
	o.uninstall = true
	installed(t, o)
	if found := strings.Join(files(t, root), " "); strings.Contains(found, "systemd") || !strings.Contains(found, units.ConfigPath) || !strings.Contains(found, "admission.seal") {
		t.Errorf("left: %s", found)
	}
	o.purge = true
	installed(t, o)
	if found := files(t, root); len(found) > 0 {
		t.Errorf("--purge has left %q", found)
	}
}

// A package brings all files but the key.
func TestAPackageLacksTheKeyAlone(t *testing.T) {
	root := t.TempDir()
	installed(t, options{user: units.User, dataDir: units.DataDir, root: root, packaged: true})
	for _, path := range files(t, root) {
		if path != units.KeyPath && !strings.HasPrefix(path, units.DataDir+"/keys/") {
			t.Errorf("%s is written, which the package brings", path)
		}
	}
	if data, err := os.ReadFile(filepath.Join(root, units.KeyPath)); err != nil || len(data) == 0 {
		t.Errorf("the launcher's key: %q, %v", data, err)
	}
}

// The configuration that is written is one that the service reads.
func TestTheConfigurationIsRead(t *testing.T) {
	o := options{user: "switchyard", dataDir: "/var/lib/switchyard", root: t.TempDir(), programs: programs(t)}
	installed(t, o)
	all, set := settings.New()
	if err := set.Load(filepath.Join(o.root, units.ConfigPath), nil); err != nil {
		t.Fatal(err)
	}
	if !all.Admission.AsSubmitters() || all.Executor.PythonPath != libraryDir || all.Executor.JobsDir != units.JobsDir || all.Web.SharedSocket == "" {
		t.Errorf("%+v", all.Executor)
	}
}

func TestNoWordOfAUnitIsAnOption(t *testing.T) {
	for _, o := range []options{
		{user: "root"},
		{user: "a b"},
		{user: "x\nUser=root"},
		{user: "switchyard", group: "$(id)"},
		{user: "switchyard", dataDir: "relative"},
		{user: "switchyard", dataDir: "/var/lib/x y"},
		{user: "switchyard", dataDir: "/x", purge: true},
		{user: "switchyard", dataDir: "/x", jobDisk: -1},
		{user: "switchyard", dataDir: "/x", jobDisk: 1, packaged: true},
	} {
		o.print = true
		if err := run(t.Context(), &bytes.Buffer{}, o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// systemd itself reads the units, and finds nothing to say.
func TestSystemdReadsTheUnits(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("no systemd-analyze")
	}
	for _, jobDisk := range []int{0, 20} {
		o := options{user: "switchyard", group: "gpu", dataDir: "/var/lib/switchyard", root: t.TempDir(), programs: programs(t), jobDisk: jobDisk}
		installed(t, o)
		for _, unit := range []string{units.Service, units.Launcher} {
			cmd := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", filepath.Join(o.root, units.LocalUnits, unit))
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s: %v\n%s", unit, err, out)
			}
		}
	}
}

// Only who bounds the space of jobs gives the launcher the right to set quotas.
func TestTheLauncherMaySetQuotasWhereItBoundsJobs(t *testing.T) {
	for jobDisk, want := range map[int]bool{0: false, 20: true} {
		o := options{user: "switchyard", dataDir: "/var/lib/switchyard", root: t.TempDir(), programs: programs(t), jobDisk: jobDisk}
		installed(t, o)
		data, err := os.ReadFile(filepath.Join(o.root, units.LocalUnits, units.Launcher))
		if err != nil {
			t.Fatal(err)
		}
		bounds, may := strings.Contains(string(data), " --job-disk 20\n"), strings.Contains(string(data), "CAP_KILL CAP_SYS_ADMIN\n")
		if bounds != want || may != want {
			t.Errorf("--job-disk %d: the launcher bounds %v, may set quotas %v", jobDisk, bounds, may)
		}
	}
}
