package installation

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// ListenUnix listens on a Unix socket that its owner alone may open. It takes the place of the one before, and has its
// mode from the first moment.
func ListenUnix(ctx context.Context, path string) (net.Listener, error) {
	folder, short, err := openFolder(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Close() }()
	fresh := short + ".new"
	if err := os.Remove(fresh); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("remove %s.new: %w", path, err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", fresh)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // the path may belong to the next process by then
	}
	err = os.Chmod(fresh, 0o600)
	if err == nil {
		err = os.Rename(fresh, short)
	}
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

// DialUnix connects to a Unix socket.
func DialUnix(ctx context.Context, path string) (net.Conn, error) {
	folder, short, err := openFolder(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Close() }()
	return (&net.Dialer{}).DialContext(ctx, "unix", short)
}

// openFolder opens the folder of a path and names the path through it: the kernel takes 107 bytes for the address of a
// socket, and data folders may lie deeper.
func openFolder(path string) (folder *os.File, short string, err error) {
	if folder, err = os.Open(filepath.Dir(path)); err != nil {
		return nil, "", fmt.Errorf("open the folder of a socket: %w", err)
	}
	return folder, fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), filepath.Base(path)), nil
}
