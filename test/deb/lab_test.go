// Package deb tests the Debian package in a fresh Debian without Go, without systemd and without a network.
package deb

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// lab is a Debian of its own in a folder, with processes, mounts and a network of its own.
type lab struct {
	t    *testing.T
	root string
	// init is the number of its first process; all others end with it.
	init int
	ctx  context.Context //nolint:containedctx // the length of one test
	// services are the running programs of the units.
	services map[string]*exec.Cmd
}

// newLab makes the Debian. A machine that cannot have it fails the test: `make e2e-deb` is never green for nothing.
func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Getenv("DEB_NEW") == "" {
		t.Skip("make e2e-deb builds the packages and names them in DEB_OLD and DEB_NEW; it takes minutes and root")
	}
	root, err := os.MkdirTemp("/var/tmp", "switchyard-deb-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
	l := &lab{t: t, root: root, ctx: ctx, services: map[string]*exec.Cmd{}}
	t.Cleanup(func() { cancel(); l.end() })
	l.must(exec.CommandContext(ctx, "debootstrap", "--variant=minbase", "bookworm", root).CombinedOutput())
	l.must(nil, os.Chmod(root, 0o755))
	begin := exec.Command("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-c", //nolint:noctx // it ends with the test's cleanup
		`mount --bind "$0" "$0" && mount -t proc proc "$0/proc" && mount --rbind /sys "$0/sys" && ip link set lo up && cd "$0" && pivot_root . mnt && umount -l /mnt && exec sh -c 'while :; do sleep 1; done'`, root)
	if err := begin.Start(); err != nil {
		t.Fatal(err)
	}
	l.services["init"] = begin
	l.until("the first process", func() bool {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", begin.Process.Pid, begin.Process.Pid))
		if err == nil {
			l.init, err = strconv.Atoi(strings.TrimSpace(string(children)))
		}
		runs, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", l.init))
		return err == nil && strings.HasPrefix(string(runs), "sh\x00-c\x00while")
	})
	return l
}

// end ends all processes and removes the folder.
func (l *lab) end() {
	if l.t.Failed() {
		logs, _ := filepath.Glob(filepath.Join(l.root, "*.log"))
		for _, path := range logs {
			data, _ := os.ReadFile(path)
			l.t.Logf("%s:\n%s", filepath.Base(path), data[max(0, len(data)-6000):])
		}
	}
	if begin := l.services["init"]; begin != nil {
		_ = begin.Process.Kill()
		_ = begin.Wait()
	}
	if err := os.RemoveAll(l.root); err != nil {
		l.t.Errorf("the folder is left: %v", err)
	}
}

// must fails the test if a command has failed.
func (l *lab) must(said []byte, err error) string {
	l.t.Helper()
	if err != nil {
		l.t.Fatalf("%v\n%s", err, said)
	}
	return string(said)
}

// command makes a command of a user in the Debian.
func (l *lab) command(user string, args ...string) *exec.Cmd {
	home := "/home/" + user
	if user == "root" {
		home = "/root"
	}
	enter := []string{"--target", strconv.Itoa(l.init), "--mount", "--pid", "--net", "--root", "--", "env", "-i", "HOME=" + home, "USER=" + user, "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	if user != "root" {
		enter = append(enter, "setpriv", "--reuid="+user, "--regid="+user, "--init-groups", "sh", "-c", `cd "$HOME" && exec "$@"`, "sh")
	}
	return exec.CommandContext(l.ctx, "nsenter", append(enter, args...)...)
}

// run runs a command that has to succeed, and returns what it says.
func (l *lab) run(user string, args ...string) string {
	l.t.Helper()
	var failed bytes.Buffer
	cmd := l.command(user, args...)
	cmd.Stderr = &failed
	said, err := cmd.Output()
	if err != nil {
		l.t.Fatalf("%q as %s: %v\n%s%s", args, user, err, said, failed.String())
	}
	return string(said)
}

// unit plays systemd: it reads a unit, makes the folders that it names, and starts its command as its user.
func (l *lab) unit(name string) {
	l.t.Helper()
	text, err := os.ReadFile(filepath.Join(l.root, "usr/lib/systemd/system", name))
	if err != nil {
		l.t.Fatal(err)
	}
	set := map[string]string{"User": "root"}
	for line := range strings.Lines(string(text)) {
		if key, value, is := strings.Cut(strings.TrimSpace(line), "="); is {
			set[key] = value
		}
	}
	l.run("root", "install", "-d", "-o", set["User"], "-m", "755", "/run/"+set["RuntimeDirectory"])
	args := append(strings.Fields(set["Environment"]), strings.Fields(set["ExecStart"])...)
	cmd := l.command("root", append([]string{"setpriv", "--reuid=" + set["User"], "--regid=" + set["User"], "--init-groups", "--no-new-privs", "env"}, args...)...)
	log, err := os.OpenFile(filepath.Join(l.root, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.services[name] = cmd
}

// stop ends the programs of the units as systemd does, and leaves their jobs alone.
func (l *lab) stop(names ...string) {
	l.t.Helper()
	for _, name := range names {
		l.run("root", "sh", "-c", `for p in /proc/[0-9]*; do tr '\0' ' ' <$p/cmdline 2>/dev/null | grep -q "^$0" && kill "${p#/proc/}"; done; true`, map[string]string{
			"switchyard.service": "/usr/bin/switchyard-server up", "switchyard-launcher.service": "/usr/bin/switchyard-supervisor launcher",
		}[name])
		_ = l.services[name].Wait()
		l.run("root", "rm", "-r", "/run/"+strings.TrimSuffix(name, ".service")) // the RuntimeDirectory of both
	}
}

// until waits for a condition.
func (l *lab) until(what string, holds func() bool) {
	l.t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-l.ctx.Done():
			l.t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}

// paths returns all files and folders, but those of the kernel, of the test, and of packages and accounts themselves.
func (l *lab) paths() map[string]bool {
	all := map[string]bool{}
	err := filepath.WalkDir(l.root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below := strings.TrimPrefix(path, l.root)
		if slices.Contains([]string{"/proc", "/sys", "/home", "/tmp", "/var/lib/dpkg", "/var/log"}, below) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(below, ".log") && (filepath.Dir(below) != "/etc" || !strings.HasSuffix(below, "-")) {
			all[below] = true
		}
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return all
}
