package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/sourcegraph/conc"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registry "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/switchyard-dl/switchyard/libs/tick"
)

// kubeletSocket is where a kubelet takes registrations, in the classic folder.
const kubeletSocket = "kubelet.sock"

// fileID distinguishes a file from another one that later got its name: a restarted kubelet may get the same inode
// again.
type fileID struct {
	inode  uint64
	change unix.Timespec
}

// identify returns the zero value if there is no file.
func identify(path string) fileID {
	var s unix.Stat_t
	if unix.Lstat(path, &s) != nil {
		return fileID{}
	}
	return fileID{inode: s.Ino, change: s.Ctim}
}

// errGone says that the socket was removed: a kubelet does that in the classic folder when it starts.
var errGone = errors.New("the socket is gone")

// serve answers on the plugin's socket until ctx ends, and makes it again if it is removed.
func (p *plugin) serve(ctx context.Context, classic bool, every time.Duration) {
	for ctx.Err() == nil {
		switch err := p.serveSocket(ctx, classic, every); {
		case errors.Is(err, errGone):
			p.log.Info("the device plugin's socket was removed and is made again", "socket", p.endpoint)
		case err != nil && ctx.Err() == nil:
			p.log.Warn("device plugin not served for now", "error", err)
			tick.Pause(ctx, every)
		}
	}
}

func (p *plugin) serveSocket(ctx context.Context, classic bool, every time.Duration) error {
	l, err := listen(ctx, p.endpoint)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	kubelet.RegisterDevicePluginServer(server, p)
	if !classic {
		registry.RegisterRegistrationServer(server, p)
	}
	var serving conc.WaitGroup
	var served error
	serving.Go(func() { served = server.Serve(l) })
	watched := p.watch(ctx, classic, every)
	server.Stop() // open streams would block a graceful stop for ever
	serving.Wait()
	return errors.Join(watched, served)
}

// listen makes the socket, for root alone, as the kubelet is. An existing one was left by a killed process.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove the old socket: %w", err)
		}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("close %s to others: %w", path, err)
	}
	return l, nil
}

// watch returns when the socket is gone or ctx ends. In the classic folder it registers with every kubelet that comes
// up; elsewhere the kubelet looks for plugins itself.
func (p *plugin) watch(ctx context.Context, classic bool, every time.Duration) error {
	own := identify(p.endpoint)
	var registered fileID
	lastError, doubt := "", time.NewTimer(doubtAfter)
	defer doubt.Stop()
	for ctx.Err() == nil {
		// It may have been removed before its inode was known.
		if now := identify(p.endpoint); now == (fileID{}) || now.inode != own.inode {
			return errGone
		}
		there := identify(filepath.Join(filepath.Dir(p.endpoint), kubeletSocket))
		if classic && there != registered && there != (fileID{}) {
			switch err := p.register(ctx); {
			case err == nil:
				registered, lastError = there, ""
				p.log.Info("the kubelet accounts for the resource")
			case err.Error() != lastError && ctx.Err() == nil:
				lastError = err.Error()
				p.log.Warn("not registered with the kubelet yet", "error", err)
			}
		}
		select {
		case <-doubt.C:
			if p.neverAsked() {
				p.log.Warn("no kubelet has asked for the resource: is its root folder another one?", "socket", p.endpoint)
			}
		default:
		}
		tick.Pause(ctx, every)
	}
	return nil
}

// doubtAfter is when a missing kubelet is reported.
const doubtAfter = 30 * time.Second

// registerTimeout bounds one registration.
const registerTimeout = 5 * time.Second

// register registers the plugin with a kubelet in the classic way.
func (p *plugin) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	dir, name := filepath.Split(p.endpoint)
	connection, err := grpc.NewClient("unix://"+filepath.Join(dir, kubeletSocket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("reach the kubelet: %w", err)
	}
	defer func() { _ = connection.Close() }()
	_, err = kubelet.NewRegistrationClient(connection).Register(ctx, &kubelet.RegisterRequest{
		Version: kubelet.Version, Endpoint: name, ResourceName: p.resource, Options: p.options(),
	})
	if err != nil {
		return fmt.Errorf("register %s: %w", p.resource, err)
	}
	return nil
}
