package bustest

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// SmallDisk mounts a disk of a few MiB for the length of the test, and returns its folder. Only root can.
func SmallDisk(t testing.TB, mib string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	dir := t.TempDir()
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+mib+"m")
	if errors.Is(err, unix.EPERM) {
		t.Skip("this machine forbids to mount a small disk")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
