package prepare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
	"github.com/switchyard-dl/switchyard/services/executor/local/launcher"
	"github.com/switchyard-dl/switchyard/services/executor/staging"
)

// Asked is what an executor says of an attempt that the launcher starts as another user. What runs, with which
// variables and in which folders, follows from the job as admission has signed it; of this, places, secrets and numbers
// count.
type Asked struct {
	Setting         launch.Setting `json:"setting"`
	LogBytes        int64          `json:"log_bytes"`
	KillAfterMillis int64          `json:"kill_after_ms"`
	Data            staging.Terms  `json:"data"`
}

// ArchiveFile is the number of the file with an uploaded folder, if the launcher passes one on.
const ArchiveFile = 3

// Signed prepares the attempt that the launcher has started as the user of a signed job, and makes its launch.
// Everything is opened and made with the rights of this process, which are his. What cannot be made is an end.
func Signed(l launcher.Start) (made attempt.Launch, end *train.Exit) {
	p := New(installation.Layout{DataDir: l.Jobs, People: true}, Bounds{User: attempt.Self()})
	p.Uploads = fromLauncher
	p.Staged = func(folder attempt.Folder, now train.Staging) { _ = folder.Stage(now) } // without it, people see less
	made, end, err := p.signed(l)
	if end == nil && err != nil {
		end = new(attempt.Unstarted(err))
	}
	return made, end
}

// signed is Signed, with errors of the machine apart.
func (p *Preparer) signed(l launcher.Start) (made attempt.Launch, end *train.Exit, err error) {
	var a Asked
	if err := json.Unmarshal(l.Asked, &a); err != nil {
		return made, nil, fmt.Errorf("read what the executor says: %w", err)
	}
	s, err := trusted(l, a.Setting)
	if err != nil {
		return made, &train.Exit{Code: launch.CannotStart, Message: err.Error()}, nil //nolint:nilerr // it is the end of the attempt
	}
	p.Bounds.LogBytes, p.Bounds.KillAfterMillis = a.LogBytes, a.KillAfterMillis
	if p.Bounds.Processors, err = proc.Processors(); err != nil {
		return made, nil, err
	}
	if l.Mounts && s.Spec.Image == "" {
		p.Bounds.Sandbox = attempt.SandboxUser
	}
	token := attempt.In(p.Layout, s.Job, s.Attempt.Number).Token()
	if err := installation.ReplaceFile(token, []byte(s.Token)); err != nil {
		return made, nil, err
	}
	if s.Secrets, err = p.ownSecrets(s.Spec, s.Secrets); errors.Is(err, launch.ErrSecret) {
		return made, new(launch.SecretMissing(err)), nil
	}
	if err == nil {
		p.Data = staging.New(staging.Config{Dir: p.PersonsData(l.User.UID), Reads: p.Reads, Terms: a.Data})
		err = p.Prepare(context.Background(), &s)
	}
	if err == nil && s.Spec.Image != "" {
		err = p.rootless(&s, l)
	}
	if err != nil {
		return made, Refused(err), err
	}
	if made, end, err = p.Launch(s); err != nil || end != nil {
		return made, end, err
	}
	p.addPrivate(&made, s)
	if s.Spec.Shell != nil {
		made.TerminalKey = s.Spec.Shell.Key
	}
	made.Group, made.Held, made.Bounded = l.Group, true, l.Bounded
	return made, nil, nil
}

// addPrivate gives a job the files of its own devices alone, and a /tmp of its own, unless it works there.
func (p *Preparer) addPrivate(made *attempt.Launch, s launch.Setting) {
	if made.Sandbox != attempt.SandboxNone {
		made.ShownDevices = devicesOf(s, driverFolder)
	}
	const shared = "/tmp"
	dir := filepath.Join(p.Own(s.Job), "tmp")
	if made.Sandbox == attempt.SandboxNone || installation.Below(s.Spec.WorkDir, shared) || installation.MakeFolder(dir) != nil {
		return
	}
	if dir, err := filepath.EvalSymlinks(dir); err == nil {
		made.Mounts = append(made.Mounts, attempt.Mount{Source: dir, Target: shared})
	}
}

// fromLauncher passes on the archive that the launcher has opened.
func fromLauncher(_ context.Context, _, _ string, read func(io.Reader) error) error {
	archive := os.NewFile(ArchiveFile, "uploaded folder")
	defer func() { _ = archive.Close() }()
	return read(archive)
}

// isSecret reports whether text looks like the secrets of a job and of its attempts: they are parts of paths.
func isSecret(text string) bool {
	return len(text) == 64 && strings.Trim(text, "0123456789abcdef") == ""
}

var (
	errSecret   = errors.New("want secrets of 64 hexadecimal digits")
	errOtherJob = errors.New("the executor speaks of another attempt than the launcher")
)

// trusted returns the setting of an attempt as far as the executor may say it: what runs is the signed spec's.
func trusted(l launcher.Start, said launch.Setting) (launch.Setting, error) {
	s, spec := said, l.Job.Spec
	switch {
	case said.Job != l.Job.ID || said.Attempt.Job != l.Job.ID || said.Attempt.Number != l.Attempt:
		return s, errOtherJob
	case !isSecret(said.Capability) || !isSecret(said.Token):
		return s, errSecret
	}
	s.Spec = launch.Tuned(spec, said.Attempt)
	s.Base, s.Passed, s.PythonPath = l.User.Environment(l.Env), nil, l.PythonPath
	s.TokenFile, s.Unreported, s.HostFile, s.Addresses, s.Ports, s.HorovodPort = "", "", "", nil, nil, 0
	s.Custom, s.Snapshots, s.Datasets, s.Work, s.Staged, s.Mounted = "", "", "", "", "", false
	s.Places = slices.Clone(said.Places)
	for i := range s.Places { // the folder of the agent's socket is the service's: code calls it over the network
		s.Places[i].Node.JobAPISocket, s.Places[i].Node.MPSDir = "", ""
	}
	return s, nil
}
