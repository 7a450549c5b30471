package nodeagent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/run"
)

// listeners are where training code reaches the job API.
type listeners struct {
	tcp    net.Listener
	unix   net.Listener
	socket string
}

func (l listeners) close() {
	_ = l.tcp.Close()
	_ = l.unix.Close()
}

// loops serve both.
func (l listeners) loops(answers http.Handler) []func(context.Context) error {
	return []func(context.Context) error{
		func(ctx context.Context) error { return run.ServeListener(ctx, l.tcp, answers) },
		func(ctx context.Context) error { return run.ServeListener(ctx, l.unix, answers) },
	}
}

// openListeners listens on the address and on a Unix socket in the agent's folder.
func openListeners(ctx context.Context, dir, address string, log *slog.Logger) (listeners, error) {
	tcp, err := listenTCP(ctx, dir, address, log)
	if err != nil {
		return listeners{}, err
	}
	socket, err := socketPath(dir)
	if err == nil {
		var u net.Listener
		if u, err = listenUnix(ctx, socket); err == nil {
			log.Info("serving the job API", "address", tcp.Addr().String(), "socket", socket)
			return listeners{tcp: tcp, unix: u, socket: socket}, nil
		}
	}
	_ = tcp.Close()
	return listeners{}, err
}

const portFile = "job_api_port"

// listenTCP takes the port of the agent that ran here before, because running jobs know it.
func listenTCP(ctx context.Context, dir, address string, log *slog.Logger) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("listen on --job-api %s: %w", address, err)
	}
	config := net.ListenConfig{}
	if port != "0" {
		l, err := config.Listen(ctx, "tcp", address)
		if err != nil {
			return nil, fmt.Errorf("listen on --job-api %s: %w", address, err)
		}
		return l, nil
	}
	path := filepath.Join(dir, portFile)
	if remembered := rememberedPort(path); remembered != "" {
		l, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, remembered))
		if err == nil {
			return l, nil
		}
		log.Warn("the job API moves to another port: jobs that run cannot reach it until they are started again", "error", err)
	}
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on --job-api %s: %w", address, err)
	}
	if err := rememberPort(path, l.Addr()); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

func rememberedPort(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	word := strings.TrimSpace(string(data))
	if n, err := strconv.ParseUint(word, 10, 16); err != nil || n == 0 {
		return ""
	}
	return word
}

func rememberPort(path string, address net.Addr) error {
	_, port, err := net.SplitHostPort(address.String())
	if err == nil {
		err = installation.WriteFile(path, []byte(port+"\n"))
	}
	if err != nil {
		return fmt.Errorf("remember the job API's port: %w", err)
	}
	return nil
}

// longestSocketPath leaves room below the kernel's 107 bytes.
const longestSocketPath = 100

// socketPath returns a path in a folder of its own in the agent's folder, or in a private temporary folder if that is
// too long for a socket.
func socketPath(dir string) (string, error) {
	const name = installation.SocketFolder + "/job.sock"
	if path := filepath.Join(dir, name); len(path) <= longestSocketPath {
		return path, nil
	}
	sum := sha256.Sum256([]byte(dir))
	short := filepath.Join(os.TempDir(), fmt.Sprintf("switchyard-%d-%s", os.Getuid(), hex.EncodeToString(sum[:6])))
	if err := os.Mkdir(short, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make a folder for the job API's socket: %w", err)
	}
	// Other users may write among the temporary folders, so the folder of this name must be ours.
	info, err := os.Lstat(short)
	if err != nil {
		return "", fmt.Errorf("make a folder for the job API's socket: %w", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm() != 0o700 || !ok || int(owner.Uid) != os.Getuid() {
		return "", fmt.Errorf("folder %s for the job API's socket: it is not this user's alone", short)
	}
	return filepath.Join(short, name), nil
}

func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make a folder for the job API's socket: %w", err)
	}
	// A socket that a killed process left behind. The folder is locked, so no process uses it now.
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the old socket: %w", err)
		}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("set the mode of %s: %w", path, err)
	}
	return l, nil
}
