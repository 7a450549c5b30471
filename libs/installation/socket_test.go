package installation

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// A service that is not in the group of its socket cannot give the socket to it: the error says what to do.
func TestTheGroupOfASharedSocketIsThatOfItsService(t *testing.T) {
	dir, err := os.MkdirTemp("", "switchyard-") // the folder of the test is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		const same, nobody = ^uintptr(0), 65534
		// The call of the kernel, which is about one thread: the one of package syscall is about all.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, same, nobody, same); errno != 0 {
			t.Fatal(errno)
		}
		defer func() { _, _, _ = syscall.RawSyscall(syscall.SYS_SETRESUID, same, 0, same) }()
	}
	_, err = ListenShared(t.Context(), filepath.Join(dir, "web.sock"), "daemon")
	if err == nil || !strings.Contains(err.Error(), "usermod --append --groups daemon USER") {
		t.Errorf("the error does not help: %v", err)
	}
}
