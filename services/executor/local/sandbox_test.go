package local

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// probeArgument makes the test program probe the sandbox as another user.
const probeArgument = "__probe"

// sandboxed returns the sandbox of this machine, or skips.
func sandboxed(t *testing.T, b *bench) attempt.Sandbox {
	t.Helper()
	kind, err := Probe(b.t.Context(), Supervisor{}, b.DataDir)
	if err != nil {
		t.Skipf("this machine allows no mount namespaces: %v", err)
	}
	return kind
}

func TestSandboxShowsTheJobsFolders(t *testing.T) {
	b := newBench(t)
	kind := sandboxed(t, b)
	l := b.launch("j", sh(`set -e
		cat /custom/in; echo "from $PWD"; echo saved > /snapshots/out; cat /data/set
		test -d /proc/self; test -e /dev/null; test -d `+b.DataDir+`; ls / | tr '\n' ' '
		if touch /here 2>/dev/null; then echo "the root can be written to"; fi
		echo; echo "left over: $(grep -c " /old[ /]" /proc/self/mountinfo)"`))
	for _, name := range []string{"custom", "snapshots", "data"} {
		dir := filepath.Join(b.DataDir, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		l.Mounts = append(l.Mounts, attempt.Mount{Source: dir, Target: "/" + name})
	}
	for path, text := range map[string]string{"custom/in": "custom code\n", "data/set": "samples\n"} {
		if err := os.WriteFile(filepath.Join(b.DataDir, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := mountPoints(t)
	l.Sandbox, l.Processes[0].Dir = kind, "/custom"
	b.start(l)
	if got := b.phase("j", launch.Exited).Exit; got != (train.Exit{}) {
		t.Fatalf("exit %+v, log %s", got, b.log("j"))
	}
	log := b.log("j")
	for _, want := range []string{"custom code\nfrom /custom\nsamples\n", " custom ", " data ", " snapshots ", " usr ", "\nleft over: 0\n"} {
		if !strings.Contains(log, want) {
			t.Errorf("log %q lacks %q", log, want)
		}
	}
	if strings.Contains(log, "can be written") {
		t.Error("the root can be written to: what is saved there would vanish")
	}
	if saved, err := os.ReadFile(filepath.Join(b.DataDir, "snapshots", "out")); err != nil || string(saved) != "saved\n" {
		t.Errorf("snapshot %q, %v", saved, err)
	}
	if after := mountPoints(t); !slices.Equal(before, after) {
		t.Errorf("the machine's mounts changed: %s", cmp.Diff(before, after))
	}
}

func mountPoints(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var points []string
	for line := range strings.Lines(string(data)) {
		points = append(points, strings.Fields(line)[4])
	}
	return points
}

func TestSandboxSaysWhatIsMissing(t *testing.T) {
	b := newBench(t)
	kind := sandboxed(t, b)
	for name, to := range map[string]string{"to-etc": "/etc", "to-root": "/"} {
		if err := os.Symlink(to, filepath.Join(b.DataDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for job, change := range map[train.JobID]func(*attempt.Launch){
		"no-folder": func(l *attempt.Launch) { l.Mounts = []attempt.Mount{{Source: "/no/such/folder", Target: "/custom"}} },
		"no-program": func(l *attempt.Launch) {
			l.Processes[0].Args = []string{"python", "/custom/x.py"}
			l.Processes[0].Env = []string{"PATH=/custom"}
		},
		"no-dir": func(l *attempt.Launch) { l.Processes[0].Dir = "/custom/deeper" },
		// Links that were put there after the launch was written, in the place of the folder and on the way to it.
		"link": func(l *attempt.Launch) {
			l.Mounts = []attempt.Mount{{Source: filepath.Join(b.DataDir, "to-etc"), Target: "/custom"}}
		},
		"link-above": func(l *attempt.Launch) {
			l.Mounts = []attempt.Mount{{Source: filepath.Join(b.DataDir, "to-root", "etc"), Target: "/custom"}}
		},
	} {
		l := b.launch(job, []string{"true"})
		l.Sandbox, l.Mounts = kind, []attempt.Mount{{Source: b.DataDir, Target: "/custom"}}
		change(&l)
		b.start(l)
	}
	for job, want := range map[train.JobID]string{
		"no-folder": "mount /custom: /no/such/folder: no such file or directory", "no-program": "command not found: python",
		"no-dir":     "enter the working folder: /custom/deeper: no such file or directory",
		"link":       "mount /custom: " + b.DataDir + "/to-etc now leads to /etc by a symbolic link",
		"link-above": "mount /custom: " + b.DataDir + "/to-root/etc now leads to /etc by a symbolic link",
	} {
		if got := b.phase(job, launch.Exited).Exit; got.Message != want || got.Code != 127 {
			t.Errorf("%s: exit %+v, want %q", job, got, want)
		}
	}
}

// An executor of an ordinary user makes a user namespace for the mounts; the program in it has no rights that the
// user does not have.
func TestSandboxOfAnOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become somebody else; for an ordinary user the other tests use the user namespace")
	}
	// The build folder of the test is closed to others.
	dir, err := os.MkdirTemp("/tmp", "switchyard-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	const nobody = 65534
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "program")
	copyFile(t, "/proc/self/exe", program)
	cmd := exec.Command(program, probeArgument, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if strings.Contains(string(out), "not permitted") || strings.Contains(string(out), "denied") {
		t.Skipf("this machine allows no user namespaces: %s", out)
	}
	if got := string(out); got != "user_mounts <nil>\n" {
		t.Errorf("probe reports %q", got)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestProcessesStayOnTheirProcessors(t *testing.T) {
	b := newBench(t)
	show := sh("grep Cpus_allowed_list /proc/self/status")
	l := b.launch("one", show)
	cpu := allowed(t)[0]
	l.Processes[0].CPUs = []int{cpu}
	b.start(l)
	l = b.launch("free", show)
	b.start(l)
	b.phase("one", launch.Exited)
	b.phase("free", launch.Exited)
	if log := b.log("one"); !strings.Contains(log, fmt.Sprintf("Cpus_allowed_list:\t%d\n", cpu)) {
		t.Errorf("bound to processor %d: %q", cpu, log)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, all, _ := strings.Cut(string(status), "Cpus_allowed_list:\t")
	all, _, _ = strings.Cut(all, "\n")
	if log := b.log("free"); !strings.Contains(log, "Cpus_allowed_list:\t"+all+"\n") {
		t.Errorf("not bound: %q, want %s", log, all)
	}
	l = b.launch("absent", show)
	l.Processes[0].CPUs = []int{1000}
	b.start(l)
	if got := b.phase("absent", launch.Exited).Exit; !strings.HasPrefix(got.Message, "bind to the processors [1000]") {
		t.Errorf("processor 1000: %+v", got)
	}
}
