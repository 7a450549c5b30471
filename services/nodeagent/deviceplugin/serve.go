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
)

// kubeletSocket is where a kubelet takes registrations, in the classic folder.
const kubeletSocket = "kubelet.sock"

// fileID tells a file from another one that has come under its name: a kubelet that was started anew may get the same inode again.
type fileID struct {
	inode  uint64
	change unix.Timespec
}

// identify gives the zero value where there is no file.
func identify(path string) fileID {
	var s unix.Stat_t
	if unix.Lstat(path, &s) != nil {
		return fileID{}
	}
	return fileID{inode: s.Ino, change: s.Ctim}
}

// errGone says that the socket was removed: a kubelet does that in the classic folder when it starts.
var errGone = errors.New("the socket is gone")

// serve answers on the plugin's socket, and makes it anew where it is removed, until ctx ends.
func (p *plugin) serve(ctx context.Context, classic bool, every time.Duration) {
	for ctx.Err() == nil {
		switch err := p.serveSocket(ctx, classic, every); {
		case errors.Is(err, errGone):
			p.log.Info("the device plugin's socket was removed: it is made anew", "socket", p.endpoint)
		case err != nil && ctx.Err() == nil:
			p.log.Warn("device plugin not served for now", "error", err)
			pause(ctx, every)
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
	server.Stop() // open streams would keep a graceful stop waiting for ever
	serving.Wait()
	return errors.Join(watched, served)
}

// listen makes the socket. One that is there is left over from a process that was killed.
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
	return l, nil
}

// watch returns when the socket is gone or ctx ends. In the classic folder it registers with every kubelet that comes up; elsewhere the kubelet looks for
// plugins itself.
func (p *plugin) watch(ctx context.Context, classic bool, every time.Duration) error {
	own := identify(p.endpoint)
	var registered fileID
	said := ""
	for ctx.Err() == nil {
		if identify(p.endpoint).inode != own.inode {
			return errGone
		}
		there := identify(filepath.Join(filepath.Dir(p.endpoint), kubeletSocket))
		if classic && there != registered && there != (fileID{}) {
			switch err := p.register(ctx); {
			case err == nil:
				registered, said = there, ""
				p.log.Info("the kubelet accounts for the GPU")
			case err.Error() != said && ctx.Err() == nil:
				said = err.Error()
				p.log.Warn("not registered with the kubelet yet", "error", err)
			}
		}
		pause(ctx, every)
	}
	return nil
}

// registerTimeout bounds one registration.
const registerTimeout = 5 * time.Second

// register tells a kubelet of the plugin, in the classic way.
func (p *plugin) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	dir, name := filepath.Split(p.endpoint)
	connection, err := grpc.NewClient("unix://"+filepath.Join(dir, kubeletSocket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("reach the kubelet: %w", err)
	}
	defer func() { _ = connection.Close() }()
	g, _ := p.now()
	_, err = kubelet.NewRegistrationClient(connection).Register(ctx, &kubelet.RegisterRequest{
		Version: kubelet.Version, Endpoint: name, ResourceName: Resource(g.UUID), Options: &kubelet.DevicePluginOptions{},
	})
	if err != nil {
		return fmt.Errorf("register %s: %w", Resource(g.UUID), err)
	}
	return nil
}

// pause waits for a while, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
