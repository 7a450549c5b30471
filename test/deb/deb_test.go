package deb

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	service  = "switchyard.service"
	launcher = "switchyard-launcher.service"
)

// add copies a package into the Debian and installs it.
func (l *lab) add(path string) string {
	l.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		l.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(l.root, "tmp/switchyard.deb"), data, 0o644); err != nil {
		l.t.Fatal(err)
	}
	return l.run("root", "dpkg", "--install", "/tmp/switchyard.deb")
}

// processes returns the command lines of the Debian's processes.
func (l *lab) processes() string {
	return l.run("root", "sh", "-c", `for p in /proc/[0-9]*; do tr '\0' ' ' <$p/cmdline 2>/dev/null && echo; done`)
}

// up starts the units, and returns once a person can use the service.
func (l *lab) up() {
	l.t.Helper()
	l.unit(launcher)
	l.unit(service)
	l.until("the service", func() bool {
		out, err := l.command("ann", "switchyard", "node", "list").Output()
		return err == nil && strings.Contains(string(out), "cpu")
	})
}

// TestAJobRunsThroughAnUpgradeAndAPurgeLeavesNothing is the life of a server that has nothing but the package.
func TestAJobRunsThroughAnUpgradeAndAPurgeLeavesNothing(t *testing.T) {
	l := newLab(t)
	l.run("root", "useradd", "--create-home", "--shell", "/bin/sh", "ann")
	before := l.paths()

	said := l.add(os.Getenv("DEB_OLD"))
	t.Logf("%s", said)
	if running := l.processes(); strings.Contains(running, "/usr/bin/switchyard") {
		t.Fatalf("the installation has started something:\n%s", running)
	}
	l.up()
	t.Logf("%s%s", l.run("ann", "switchyard", "version"), l.run("ann", "switchyard", "node", "list"))
	if said := l.run("ann", "switchyard", "run", "id", "--user", "--name"); !strings.Contains(said, "ann\n") {
		t.Errorf("a job of ann's is not ann: %s", said)
	}

	l.run("ann", "switchyard", "submit", "--name", "long", "--", "sh", "-c", "echo began as $$; until [ -e $HOME/go ]; do sleep 0.2; done; echo went on as $$")
	logs := func() string { out, _ := l.command("ann", "switchyard", "logs", "long").Output(); return string(out) }
	l.until("the job", func() bool { return strings.Contains(logs(), "began as ") })

	old := l.run("ann", "switchyard", "--version")
	t.Logf("%s", l.add(os.Getenv("DEB_NEW")))
	now := l.run("ann", "switchyard", "--version")
	if now == old {
		t.Fatalf("the upgrade has brought no other program: %s", now)
	}
	l.stop(service, launcher) // as `systemctl try-restart` in the package's script
	l.up()
	said = l.run("ann", "switchyard", "version")
	t.Logf("%s%s", said, l.run("ann", "switchyard", "ps"))
	if !strings.HasSuffix(strings.TrimSpace(said), ": web") || strings.Count(said, strings.TrimSpace(strings.TrimPrefix(now, "switchyard version "))) != 2 {
		t.Errorf("command and service are not both of the new package, %s", now)
	}
	l.run("ann", "touch", "go")
	l.run("ann", "switchyard", "wait", "long")
	began, went, _ := strings.Cut(logs(), "went on as ")
	if _, number, _ := strings.Cut(began, "began as "); strings.TrimSpace(number) == "" || strings.Fields(number)[0] != strings.TrimSpace(went) || strings.Count(began, "began") != 1 {
		t.Errorf("the job was started again:\n%s", logs())
	}
	l.run("ann", "switchyard", "run", "true")
	l.run("root", "switchyard", "backup", "/tmp/backup.tar") // with the operator's key, which root finds

	l.stop(service, launcher) // as the package's script does where systemd runs
	for user, args := range map[string][]string{"ann": {"run", "true"}, "root": {"up"}} {
		if out, err := l.command(user, append([]string{"switchyard"}, args...)...).CombinedOutput(); err == nil || !strings.Contains(string(out), "systemctl start switchyard") {
			t.Errorf("%q of %s while the service is stopped: %v\n%s", args, user, err, out)
		}
	}
	t.Logf("%s", l.run("root", "dpkg", "--purge", "switchyard"))
	for path := range l.paths() {
		if !before[path] {
			t.Errorf("the purge has left %s", path)
		}
	}
	if out, err := l.command("root", "getent", "passwd", "switchyard").Output(); err == nil {
		t.Errorf("the purge has left a user: %s", out)
	}
	if running := l.processes(); strings.Contains(running, "/usr/bin/switchyard") {
		t.Errorf("the purge has left processes:\n%s", running)
	}
}
