// Package prepare makes an attempt ready to run on this machine. It makes the job's folders, brings its data, its
// uploaded folder and the checkpoints that it continues, reads its secrets, and composes the launch that the supervisor
// follows. The executor does this for jobs that run as its own user, and the supervisor for those of other people, with
// their rights. The package starts nothing.
package prepare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/engine"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/joblog"
	"github.com/switchyard-dl/switchyard/libs/look"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/upload"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
	"github.com/switchyard-dl/switchyard/services/executor/staging"
)

// Uploads passes the archive of a folder that a person has uploaded to a function. The error is upload.ErrRefused if
// there is no such archive.
type Uploads func(ctx context.Context, person, hash string, read func(archive io.Reader) error) error

// Preparer prepares attempts below a data folder.
type Preparer struct {
	installation.Layout
	Bounds Bounds
	// Uploads is where uploaded folders come from.
	Uploads Uploads
	// Data caches what attempts fetch from their data URLs.
	Data *staging.Cache
	// Staged receives how much of an attempt's data has arrived.
	Staged func(attempt.Folder, train.Staging)

	// folders checks the folders that jobs name, and datasets finds those in people's homes: all jobs of a machine wait
	// for the executor to start them, and a file server may be away.
	folders  *look.Looks[string, error]
	datasets *look.Looks[string, string]
}

// New makes a preparer. What it needs to fetch data and uploads is set later.
func New(l installation.Layout, bounds Bounds) Preparer {
	return Preparer{Layout: l, Bounds: bounds, folders: look.New(checkFolder), datasets: look.New(datasetsIn)}
}

// Mounts reports whether a job sees its folders under their fixed names: always in a container, otherwise if the
// machine allows it.
func (p *Preparer) Mounts(spec train.Spec) bool {
	return spec.Image != "" || p.Bounds.Sandbox != attempt.SandboxNone
}

// Sandbox returns how a job gets its own file system. A container has one.
func (p *Preparer) Sandbox(spec train.Spec) attempt.Sandbox {
	if spec.Image != "" {
		return attempt.SandboxNone
	}
	return p.Bounds.Sandbox
}

// Prepared reports whether an attempt needs nothing that Prepare would have to bring.
func (p *Preparer) Prepared(s launch.Setting) bool {
	return s.Spec.DataURL == "" && (s.Spec.Upload == "" || installation.Exists(p.Upload(s.Job))) &&
		(s.Spec.Continue == "" || installation.Exists(p.continued(s.Job)))
}

// Prepare brings what an attempt begins with: the data at an address, the uploaded folder, and the checkpoints of the
// job that it continues.
func (p *Preparer) Prepare(ctx context.Context, s *launch.Setting) error {
	if err := p.stageData(ctx, s); err != nil {
		return err
	}
	if err := p.unpack(ctx, s.Job, s.Spec); err != nil {
		return err
	}
	return p.copyCheckpoints(ctx, *s)
}

// Refused returns the end of an attempt that can never be prepared because of an error; nil if another try may succeed.
func Refused(err error) *train.Exit {
	switch {
	case errors.Is(err, errChanged):
		return nil
	case errors.Is(err, errNotStaged):
		return new(notStaged(err))
	case errors.Is(err, upload.ErrRefused), errors.Is(err, errContinue):
		return new(attempt.Unstarted(err))
	}
	return nil
}

// unpack makes the copy of an uploaded folder, whose hash in the spec proves that it is that one. The copy has its name
// only once it is whole.
func (p *Preparer) unpack(ctx context.Context, job train.JobID, spec train.Spec) error {
	if spec.Upload == "" || installation.Exists(p.Upload(job)) {
		return nil
	}
	part := p.Upload(job) + ".part"
	if err := os.RemoveAll(part); err != nil {
		return fmt.Errorf("remove half an upload: %w", err)
	}
	if err := installation.MakeFolder(part); err != nil {
		return err
	}
	err := p.Uploads(ctx, spec.User, spec.Upload, func(archive io.Reader) error {
		return upload.Unpack(archive, spec.Upload, upload.Standard(), part)
	})
	if err == nil {
		err = os.Rename(part, p.Upload(job))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("fetch the uploaded folder of %s: %w", job, err), os.RemoveAll(part))
	}
	return nil
}

// Launch makes the launch of an attempt, and the folders and files that it names. What can never work is an end.
func (p *Preparer) Launch(s launch.Setting) (made attempt.Launch, end *train.Exit, err error) {
	folder := attempt.In(p.Layout, s.Job, s.Attempt.Number)
	if why := lacks(s); why != "" {
		return made, &train.Exit{Code: launch.CannotStart, Message: why}, nil
	}
	if reason := attempt.FullDisk(p.DataDir); reason.Code != "" {
		return made, &train.Exit{Lost: true, Unstarted: true, Reason: reason}, nil
	}
	s.Mounted = p.Mounts(s.Spec)
	if err := p.resolveFolders(&s); err != nil {
		return made, new(attempt.Unstarted(err)), nil
	}
	links := pool.New().WithErrors()
	links.Go(func() error { return p.link(s) })
	made, end, err = p.describe(s, folder)
	if broken := links.Wait(); broken != nil && end == nil && err == nil {
		return made, new(attempt.Unstarted(broken)), nil
	}
	return made, end, err
}

// describe is Launch for an attempt with folders.
func (p *Preparer) describe(s launch.Setting, folder attempt.Folder) (made attempt.Launch, end *train.Exit, err error) {
	s.TokenFile, s.Unreported = folder.Token(), folder.Unreported()
	if err := os.MkdirAll(s.Unreported, p.reportsMode()); err != nil {
		return made, nil, fmt.Errorf("make the folder of reports: %w", err)
	}
	n := len(s.Processes())
	ports, err := freePorts(n + 1)
	if err != nil {
		return made, nil, err
	}
	s.Ports = ports[:n]
	switch {
	case s.Spec.Launch == train.LaunchPerDevice && n > 1:
		s.HorovodPort = ports[n]
	case s.Spec.Launch != train.LaunchPerDevice && s.Spec.Image == "": // a container sees no files of the scheduler
		s.HostFile = folder.Hosts()
		if err := writeHosts(s); err != nil {
			return made, nil, err
		}
	}
	if s.Spec.Image != "" {
		if err := p.Bounds.writeEnvironments(p.Layout, s); errors.Is(err, errLines) {
			return made, new(attempt.Unstarted(err)), nil
		} else if err != nil {
			return made, nil, err
		}
	}
	made = Compose(s, p.Layout, p.Bounds, joblog.Header(s.Attempt, time.Now().UTC().Format(time.RFC3339)))
	if made.Sandbox != attempt.SandboxNone {
		made.Hidden, made.Kept = p.visible(s)
	}
	return made, nil, nil
}

// reportsMode is that of the folder from which the executor takes reports, which may be another user.
func (p *Preparer) reportsMode() os.FileMode {
	if p.People {
		return 0o770
	}
	return 0o700
}

// lacks says which need of an attempt its node cannot meet; it is empty if the node has everything. The folder of the
// daemon is what the node's record says, and containers see it, so it must be one.
func lacks(s launch.Setting) string {
	if s.Spec.Image != "" && engine.Named(s.Home().ContainerRuntime) == engine.None {
		return "this node has no container runtime (docker or podman) to run the image in"
	}
	if pipes := s.Home().MPSDir; pipes != "" && !installation.Exists(filepath.Join(pipes, "control")) {
		return pipes + " is not where NVIDIA's Multi-Process Service has its pipes: it has none of the name control"
	}
	return ""
}

func writeHosts(s launch.Setting) error {
	if err := installation.MakeFolder(filepath.Dir(s.HostFile)); err != nil {
		return err
	}
	if err := os.WriteFile(s.HostFile, []byte(s.HostFileText()), 0o600); err != nil {
		return fmt.Errorf("write the slots for mpirun: %w", err)
	}
	return nil
}

// freePorts finds ports that are free now. Another process may take one before it is used; the attempt then fails to
// meet and reports that.
func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // nothing is waited for
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer func() { _ = l.Close() }()
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			ports[i] = a.Port
		}
	}
	return ports, nil
}
