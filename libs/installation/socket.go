package installation

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// SharedSocket is where the users of a machine find the service web of its installation, if they have none of their
// own.
const SharedSocket = "/run/switchyard/web.sock"

// ListenUnix listens on a Unix socket that its owner alone may open. It takes the place of the one before, and has its
// mode from the first moment.
func ListenUnix(ctx context.Context, path string) (net.Listener, error) {
	return listenUnix(ctx, path, func(path string) error { return os.Chmod(path, 0o600) })
}

// ListenShared is ListenUnix for a socket that the members of a group may open or, without a group, everybody.
func ListenShared(ctx context.Context, path, group string) (net.Listener, error) {
	return listenUnix(ctx, path, func(path string) error {
		if group == "" {
			return os.Chmod(path, 0o666)
		}
		g, err := user.LookupGroup(group)
		if err != nil {
			return err
		}
		gid, err := strconv.Atoi(g.Gid)
		if err != nil {
			return fmt.Errorf("the number of the group %s: %w", group, err)
		}
		if err := os.Chown(path, -1, gid); err != nil {
			return fmt.Errorf("only a member may give it to the group %s: add the user of this process (`usermod --append --groups %s USER`) and start again: %w", group, group, err)
		}
		return os.Chmod(path, 0o660)
	})
}

// listenUnix listens on a Unix socket that those may open whom permit lets.
func listenUnix(ctx context.Context, path string, permit func(path string) error) (net.Listener, error) {
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
	err = permit(fresh)
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
