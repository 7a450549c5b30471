package attempt

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// network of terminals keeps the borders of packets.
const network = "unixpacket"

// Terminals is the socket on which a supervisor accepts terminals.
type Terminals struct {
	*net.UnixListener
	folder *os.File
}

// terminalAddress is the address of the socket in an attempt's folder, however long the path of the folder is.
func terminalAddress(folder *os.File) *net.UnixAddr {
	return &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), terminalName), Net: network}
}

// ListenTerminals listens on the socket in the attempt's folder.
func (f Folder) ListenTerminals() (Terminals, error) {
	folder, err := os.Open(f.Path)
	if err != nil {
		return Terminals{}, err
	}
	_ = os.Remove(filepath.Join(f.Path, terminalName)) // of a supervisor that gave the attempt up
	listener, err := net.ListenUnix(network, terminalAddress(folder))
	if err != nil {
		_ = folder.Close()
		return Terminals{}, fmt.Errorf("listen for terminals: %w", err)
	}
	return Terminals{listener, folder}, nil
}

// Close removes the socket.
func (t Terminals) Close() error { return errors.Join(t.UnixListener.Close(), t.folder.Close()) }

// DialTerminals connects to the supervisor.
func (f Folder) DialTerminals() (*net.UnixConn, error) {
	folder, err := os.Open(f.Path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Close() }()
	return net.DialUnix(network, nil, terminalAddress(folder))
}
