package local

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

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/upload"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/launcher"
	"github.com/switchyard-dl/switchyard/services/executor/staging"
)

// asked is what an executor says of an attempt that the launcher starts as another user. What runs, with which
// variables and in which folders, follows from the job as admission has signed it; of this, places, secrets and numbers
// count.
type asked struct {
	Setting         launch.Setting `json:"setting"`
	LogBytes        int64          `json:"log_bytes"`
	KillAfterMillis int64          `json:"kill_after_ms"`
	Data            staging.Terms  `json:"data"`
}

// sharedMode is that of files in which the executor reads what its supervisor, another user, has written.
const sharedMode = 0o640

// writing and replacing return how a file is written; see writeJSON.
func writing(shared bool) func(string, []byte) error {
	if shared {
		return installation.WriteShared
	}
	return installation.WriteFile
}

func replacing(shared bool) func(string, []byte) error {
	if shared {
		return installation.ReplaceShared
	}
	return installation.ReplaceFile
}

// archiveFile is the number of the file with an uploaded folder, if the launcher passes one on.
const archiveFile = 3

// superviseLaunched is the life of a supervisor that the launcher has started as the user of a job. Everything is
// opened and made with his rights.
func superviseLaunched(from io.Reader) error {
	var l launcher.Start
	if err := json.NewDecoder(from).Decode(&l); err != nil {
		return fmt.Errorf("read what to start: %w", err)
	}
	unix.CloseOnExec(archiveFile)
	if l.Processes {
		if err := launcher.ShowOwnProcesses(); err != nil {
			return err
		}
	}
	// The executor reads what is in the folder of the attempt, and takes reports away. Programs have the usual mask.
	unix.Umask(0o007)
	b := New(l.Jobs, Bounds{})
	b.People = true
	dir := b.Attempt(l.Job.ID, l.Attempt)
	if stderr, err := os.OpenFile(filepath.Join(dir, stderrName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, sharedMode); err == nil {
		_ = unix.Dup3(int(stderr.Fd()), int(os.Stderr.Fd()), 0)
		_ = stderr.Close()
	}
	made, end, err := b.composeLaunched(l)
	if err != nil {
		end = new(unstarted(err))
	}
	if end != nil {
		return refuseBy(dir, *end, installation.WriteShared)
	}
	// It has the job's secrets: not even the service reads it.
	if err := writeJSON(filepath.Join(dir, launchName), made, installation.ReplaceFile); err != nil {
		return err
	}
	return supervise(dir, true)
}

// composeLaunched makes the launch of a signed job.
func (b *Backend) composeLaunched(l launcher.Start) (made Launch, end *train.Exit, err error) {
	var a asked
	if err := json.Unmarshal(l.Asked, &a); err != nil {
		return made, nil, fmt.Errorf("read what the executor says: %w", err)
	}
	s, err := trusted(l, a.Setting)
	if err != nil {
		return made, &train.Exit{Code: launch.CannotStart, Message: err.Error()}, nil //nolint:nilerr // it is the end of the attempt
	}
	b.bounds.LogBytes, b.bounds.KillAfterMillis = a.LogBytes, a.KillAfterMillis
	if b.bounds.Processors, err = proc.Processors(); err != nil {
		return made, nil, err
	}
	if l.Mounts && s.Spec.Image == "" {
		b.bounds.Sandbox = SandboxUser
	}
	dir := b.Attempt(s.Job, s.Attempt.Number)
	if err := installation.ReplaceFile(filepath.Join(dir, tokenName), []byte(s.Token)); err != nil {
		return made, nil, err
	}
	if s.Secrets, err = b.ownSecrets(s.Spec, s.Secrets); errors.Is(err, launch.ErrSecret) {
		return made, new(launch.SecretMissing(err)), nil
	}
	if err == nil {
		b.Data = staging.New(staging.Config{Dir: b.PersonsData(l.User.UID), Reads: b.Reads, Terms: a.Data})
		err = b.bring(&s, l)
	}
	if errors.Is(err, errNotStaged) {
		return made, new(notStaged(err)), nil
	}
	if err != nil {
		return made, new(unstarted(err)), nil
	}
	if made, end, err = b.compose(s); err != nil || end != nil {
		return made, end, err
	}
	b.addPrivate(&made, s)
	if s.Spec.Shell != nil {
		made.TerminalKey = s.Spec.Shell.Key
	}
	made.Group, made.Held, made.Bounded = l.Group, true, l.Bounded
	return made, nil, nil
}

// bring brings what a signed job needs before it starts. Data comes from its address with the rights of the job's user,
// into copies that are his alone.
func (b *Backend) bring(s *launch.Setting, l launcher.Start) error {
	err := b.stageData(context.Background(), s)
	if err == nil {
		err = b.fetch(*s)
	}
	if err == nil && s.Spec.Image != "" {
		err = b.rootless(s, l)
	}
	if err == nil {
		err = b.copyCheckpoints(context.Background(), *s)
	}
	return err
}

// addPrivate gives a job the files of its own devices alone, and a /tmp of its own, unless it works there.
func (b *Backend) addPrivate(made *Launch, s launch.Setting) {
	if made.Sandbox != SandboxNone {
		made.ShownDevices = devicesOf(s, driverFolder)
	}
	const shared = "/tmp"
	dir := filepath.Join(b.Own(s.Job), "tmp")
	if made.Sandbox == SandboxNone || installation.Below(s.Spec.WorkDir, shared) || makeFolder(dir) != nil {
		return
	}
	if dir, err := filepath.EvalSymlinks(dir); err == nil {
		made.Mounts = append(made.Mounts, Mount{Source: dir, Target: shared})
	}
}

// fetch unpacks the folder that the job uploaded, which its hash in the signed spec proves to be that one.
func (b *Backend) fetch(s launch.Setting) error {
	if s.Spec.Upload == "" || exists(b.Upload(s.Job)) {
		return nil
	}
	archive := os.NewFile(archiveFile, "uploaded folder")
	defer func() { _ = archive.Close() }()
	part := b.Upload(s.Job) + ".part"
	if err := errors.Join(os.RemoveAll(part), makeFolder(part)); err != nil {
		return err
	}
	if err := upload.Unpack(archive, s.Spec.Upload, upload.Standard(), part); err != nil {
		return errors.Join(err, os.RemoveAll(part))
	}
	return os.Rename(part, b.Upload(s.Job))
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
