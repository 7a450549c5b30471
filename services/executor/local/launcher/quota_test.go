package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/disk"
)

// For a test program that is the first process of a kernel: the folder of its modules, and a kind of file system.
const (
	insideVariable = "QUOTA_MODULES"
	kindVariable   = "QUOTA_KIND"
)

func TestMain(m *testing.M) {
	if modules := os.Getenv(insideVariable); modules != "" && os.Getpid() == 1 {
		fmt.Println("inside:", inside(modules))
		unix.Sync()
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	}
	os.Exit(m.Run())
}

// TestJobsAreBoundedByProjectQuotas runs a kernel with quotas as a process (User-Mode Linux): few machines have such a
// file system.
func TestJobsAreBoundedByProjectQuotas(t *testing.T) {
	uml := os.Getenv("UML")
	if uml == "" {
		t.Skip("UML names no folder with a kernel that is a process (make e2e-quota does)")
	}
	modules, err := filepath.Glob(filepath.Join(uml, "usr/lib/uml/modules/*/kernel/fs/quota"))
	if err != nil || len(modules) != 1 {
		t.Fatalf("modules of the kernel: %v %v (Debian: apt-get install user-mode-linux xfsprogs)", modules, err)
	}
	self, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	for kind, mkfs := range map[string][]string{
		"ext4": {"mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota"}, "xfs": {"mkfs.xfs", "-q"},
	} {
		t.Run(kind, func(t *testing.T) {
			image := filepath.Join(t.TempDir(), "image")
			if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 4<<30)); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), mkfs[0], append(mkfs[1:], image)...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			kernel := exec.CommandContext(ctx, filepath.Join(uml, "usr/bin/linux.uml"), "mem=256M", "ubd0="+image, "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw",
				"init="+self, "con=null", "con0=null,fd:1", "quiet", insideVariable+"="+modules[0], kindVariable+"="+kind)
			kernel.WaitDelay = time.Second
			out, err := kernel.CombinedOutput()
			for _, want := range []string{
				"a file system without: /mnt: the file system counts no projects", "half of it: <nil>", "more than all of it: true", "beside it: <nil>", "another job: <nil>", "without that right: true", "inside: <nil>",
			} {
				if !strings.Contains(string(out), want) {
					t.Errorf("the kernel (%v) does not say %q:\n%s", err, want, out)
				}
			}
		})
	}
}

// inside makes the folders of two jobs on a file system with project quotas, and lets their user fill them.
func inside(modules string) error {
	err := errors.Join(unix.Mount("proc", "/proc", "proc", 0, ""), unix.Mount("none", "/mnt", "tmpfs", 0, ""), os.Mkdir("/mnt/jobs", 0o755))
	for _, name := range []string{"quota_tree.ko", "quota_v2.ko"} {
		f, opened := os.Open(filepath.Join(modules, name))
		err = errors.Join(err, opened)
		if opened == nil {
			err = errors.Join(err, unix.FinitModule(int(f.Fd()), "", 0), f.Close())
		}
	}
	err = errors.Join(err, unix.Mount("/dev/ubda", "/mnt/jobs", os.Getenv(kindVariable), 0, "prjquota"), disk.Quotas("/mnt/jobs"))
	if err != nil {
		return err
	}
	fmt.Println("a file system without:", disk.Quotas("/mnt"))
	if err := rights(unix.CAP_SYS_ADMIN); err != nil {
		return err
	}
	l := &Launcher{config: Config{Jobs: "/mnt/jobs", Disk: 1}}
	u := User{UID: 1234, GID: 1234}
	if err := errors.Join(makeFolder("/mnt/jobs/jobs", 0, 0, passedMode), l.makeFolders("one", 1, u), l.makeFolders("one", 2, u), l.makeFolders("two", 1, u)); err != nil {
		return err
	}
	const mib = 1 << 20
	layout := l.layout()
	below := filepath.Join(layout.Own("one"), "work")
	fill := func(path string, size int64) error {
		fd, err := unix.Open(path, unix.O_CREAT|unix.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		return errors.Join(unix.Fallocate(fd, 0, 0, size), unix.Close(fd))
	}
	// As root, nothing would be bounded.
	if err := errors.Join(syscall.Setresuid(-1, u.UID, -1), os.Mkdir(below, 0o700)); err != nil {
		return err
	}
	fmt.Println("half of it:", fill(filepath.Join(below, "a"), 512*mib))
	full := fill(filepath.Join(below, "b"), 600*mib) // XFS says that there is no space left
	fmt.Println("more than all of it:", errors.Is(full, unix.EDQUOT) || errors.Is(full, unix.ENOSPC), full)
	fmt.Println("beside it:", fill(filepath.Join(layout.Attempt("one", 1), "exit"), mib))
	fmt.Println("another job:", fill(filepath.Join(layout.Own("two"), "a"), 600*mib))
	if err := errors.Join(syscall.Setresuid(-1, 0, -1), rights()); err != nil {
		return err
	}
	fmt.Println("without that right:", errors.Is(l.makeFolders("three", 1, u), unix.EPERM))
	return nil
}

// rights leaves this thread the rights of the launcher's unit, more, and that to switch the machine off.
func rights(more ...uint) error {
	runtime.LockOSThread()
	var left uint32
	for _, right := range append(more, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_CHOWN, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_DAC_OVERRIDE, unix.CAP_KILL, unix.CAP_SYS_BOOT) {
		left |= 1 << right
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: left, Permitted: left}}
	return unix.Capset(&header, &data[0])
}
