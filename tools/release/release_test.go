package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/blakesmith/ar"
	"github.com/ulikunitz/xz"
)

// program builds a small program that needs the C library, as the node agent does.
func program(t *testing.T, arch string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module small\n\ngo 1.26\n", "main.go": "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"small\") }\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flags, cgo := "-s -w -buildid= -linkmode external", "CGO_ENABLED=1"
	if arch != runtime.GOARCH { // a static one needs no other compiler
		flags, cgo = "-s -w", "CGO_ENABLED=0"
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", flags, "-o", "small", ".")
	build.Dir, build.Env = dir, append(os.Environ(), cgo, "GOARCH="+arch, "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "small")
}

// of returns a release of this tree whose programs are copies of a small one.
func of(t *testing.T) *release {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	r := &release{source: root, stage: t.TempDir(), version: "1.2.3-rc.1", at: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC), built: map[string]string{}}
	small := map[string]string{"amd64": program(t, "amd64"), "arm64": program(t, "arm64")}
	for _, target := range clients() {
		data, err := os.ReadFile(small[target.arch])
		if err != nil {
			t.Fatal(err)
		}
		for name := range programs() {
			path := filepath.Join(r.stage, "bin", target.os+"_"+target.arch, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, data, 0o755); err != nil {
				t.Fatal(err)
			}
			r.built[path] = name
		}
	}
	return r
}

// written makes all files of a release, and their checksums.
func written(t *testing.T, r *release) (dir string, sums map[string][32]byte) {
	t.Helper()
	dir, sums = t.TempDir(), map[string][32]byte{}
	var names []string
	all, err := r.artifacts()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		path := filepath.Join(dir, a.name)
		if err := r.make(t.Context(), a, path); err != nil {
			t.Fatalf("%s: %v", a.name, err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sums[a.name] = sha256.Sum256(data)
		names = append(names, a.name)
	}
	if err := writeSums(dir, names); err != nil {
		t.Fatal(err)
	}
	return dir, sums
}

func TestTheSameCommitGivesTheSameBytes(t *testing.T) {
	_, first := written(t, of(t))
	_, second := written(t, of(t))
	if len(first) < 11 {
		t.Fatalf("only %d files", len(first))
	}
	for name, sum := range first {
		if second[name] != sum {
			t.Errorf("%s differs", name)
		}
	}
}

// contents returns the files of a tar, each with its mode and text.
func contents(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	all := map[string]string{}
	for in := tar.NewReader(r); ; {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if head.Typeflag == tar.TypeReg {
			all[strings.TrimPrefix(head.Name, ".")] = head.FileInfo().Mode().String() + "\n" + string(text)
		}
	}
}

// TestADebBringsAllAndStartsNothing reads a package as dpkg does.
func TestADebBringsAllAndStartsNothing(t *testing.T) {
	r, deb := of(t), bytes.Buffer{}
	if err := r.packaged(servers()[0], "deb")(t.Context(), &deb); err != nil {
		t.Fatal(err)
	}
	var control, data map[string]string
	for in := ar.NewReader(&deb); ; {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch strings.TrimRight(head.Name, "/") {
		case "control.tar.gz":
			zipped, err := gzip.NewReader(in)
			if err != nil {
				t.Fatal(err)
			}
			control = contents(t, zipped)
		case "data.tar.xz":
			zipped, err := xz.NewReader(in)
			if err != nil {
				t.Fatal(err)
			}
			data = contents(t, zipped)
		}
	}
	for name, want := range map[string]string{
		"/control": "Version: 1.2.3~rc.1\n", "/conffiles": "/etc/switchyard/switchyard.yaml\n", "/postinst": "switchyard install --packaged", "/postrm": "rm -rf /var/lib/switchyard ",
	} {
		if !strings.Contains(control[name], want) {
			t.Errorf("%s lacks %q:\n%s", name, want, control[name])
		}
	}
	if !regexp.MustCompile(`\nDepends: passwd, libc6 \(>= 2\.\d+\)\n`).MatchString(control["/control"]) {
		t.Errorf("which C library is needed? %s", control["/control"])
	}
	for name, text := range control {
		if name != "/control" && regexp.MustCompile(`@[A-Z]+@|systemctl (start|restart)|enable`).MatchString(text) {
			t.Errorf("%s has a name that nobody filled in, or starts something:\n%s", name, text)
		}
	}
	for name, want := range map[string]string{
		"/usr/bin/switchyard": "-rwxr-xr-x", "/usr/bin/switchyard-server": "-rwxr-xr-x", "/usr/bin/switchyard-supervisor": "-rwxr-xr-x", "/usr/bin/switchyard-trainer": "-rwxr-xr-x",
		"/usr/lib/systemd/system/switchyard.service":          "\nExecStart=/usr/bin/switchyard-server up --config /etc/switchyard/switchyard.yaml\nUser=switchyard\n",
		"/usr/lib/systemd/system/switchyard-launcher.service": "\nExecStart=/usr/bin/switchyard-supervisor launcher --user switchyard --jobs /var/lib/switchyard-jobs --key /etc/switchyard/admission.pub --python-path /usr/lib/switchyard/python\n",
		"/etc/switchyard/switchyard.yaml":                     "python_path: /usr/lib/switchyard/python}",
		"/usr/lib/switchyard/python/switchyard/__init__.py":   "-rw-r--r--", "/usr/share/doc/switchyard/copyright": "Apache License",
	} {
		if !strings.Contains(data[name], want) {
			t.Errorf("%s lacks %q:\n%.300s", name, want, data[name])
		}
	}
}

// install runs the script of a release, and returns what it says.
func install(ctx context.Context, dir string, args ...string) (said string, err error) {
	cmd := exec.CommandContext(ctx, "sh", slices.Concat([]string{filepath.Join(dir, "install.sh"), "--from", dir}, args)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestTheScriptInstallsWhatTheChecksumsSay installs a release from its folder, and nothing of one with changed files.
func TestTheScriptInstallsWhatTheChecksumsSay(t *testing.T) {
	dir, _ := written(t, of(t))
	to := filepath.Join(t.TempDir(), "new", "bin")
	said, err := install(t.Context(), dir, "--to", to)
	if err != nil || !strings.Contains(said, "add it to PATH: export PATH=\""+to) {
		t.Fatalf("%v: %s", err, said)
	}
	for _, name := range everything() {
		if info, err := os.Stat(filepath.Join(to, name)); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	alone := t.TempDir()
	if said, err := install(t.Context(), dir, "--client", "--to", alone); err != nil {
		t.Errorf("%v: %s", err, said)
	}
	if found, err := os.ReadDir(alone); err != nil || len(found) != 1 || found[0].Name() != "switchyard" {
		t.Errorf("the client alone is %v, %v", found, err)
	}
	archives, err := filepath.Glob(filepath.Join(dir, "*.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range archives {
		if err := os.WriteFile(path, []byte("changed"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	refused := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--to", refused}, "is damaged or was changed"},
		{[]string{"--to"}, "--to needs a value"},
		{[]string{"--nope"}, "unknown option --nope"},
		{[]string{"--from", t.TempDir()}, "has no file SHA256SUMS"},
	} {
		if said, err := install(t.Context(), dir, c.args...); err == nil || !strings.Contains(said, c.want) {
			t.Errorf("%v: %v, want %q: %s", c.args, err, c.want, said)
		}
	}
	if _, err := os.Stat(refused); err == nil {
		t.Error("a changed archive was installed")
	}
}

// TestWhatCannotBeBuiltHereIsSaid names the compiler that is missing.
func TestWhatCannotBeBuiltHereIsSaid(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, arch := range []string{"amd64", "arm64"} {
		if _, err := compiler(target{"linux", arch}); err == nil || !strings.Contains(err.Error(), "apt-get install gcc") {
			t.Errorf("%s: %v", arch, err)
		}
	}
}
