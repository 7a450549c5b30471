package prepare

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// maxSecret bounds the value of a secret variable.
const maxSecret = 64 << 10

// Secrets returns the values of the secret variables of a job that this process reads, by their kinds. It takes only
// what belongs to the job's user, even if it may read more.
func (p *Preparer) Secrets(spec train.Spec, reads func(train.SecretKind) bool) (map[string]string, error) {
	values := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(spec.SecretEnv)) {
		source, err := train.ParseSecret(spec.SecretEnv[name])
		if err == nil && !reads(source.Kind) {
			continue
		}
		if err == nil {
			values[name], err = p.readSecret(spec, source)
		}
		switch {
		case attempt.Passes(err):
			return nil, fmt.Errorf("read secret_env.%s: %w", name, err)
		case err != nil:
			return nil, fmt.Errorf("%w secret_env.%s: %w", launch.ErrSecret, name, err)
		}
	}
	return values, nil
}

// ownSecrets returns the values of the secret variables of a signed job that its supervisor has started as the
// submitter. It reads files with his rights alone. The executor gives the values of credentials, and no others.
func (p *Preparer) ownSecrets(spec train.Spec, said map[string]string) (map[string]string, error) {
	values, err := p.Secrets(spec, func(kind train.SecretKind) bool { return kind == train.SecretFile })
	if err != nil {
		return nil, err
	}
	for name, text := range spec.SecretEnv {
		source, err := train.ParseSecret(text)
		if value, given := said[name]; err == nil && given && source.Kind == train.SecretCredential {
			values[name] = value
		}
	}
	return values, nil
}

func (p *Preparer) readSecret(spec train.Spec, s train.SecretSource) (string, error) {
	switch s.Kind {
	case train.SecretFile:
		uid, err := spec.UID, error(nil)
		if uid == 0 {
			uid, err = uidOf(spec.User)
		}
		if err != nil {
			return "", err
		}
		return p.readFileOf(uid, spec.User, s.Name)
	case train.SecretCredential:
		folder := os.Getenv("CREDENTIALS_DIRECTORY")
		if folder == "" {
			return "", errors.New("systemd has loaded no credentials for the executor: LoadCredential= does")
		}
		f, err := os.Open(filepath.Join(folder, spec.User+"."+s.Name))
		if err != nil {
			return "", fmt.Errorf("systemd has not loaded the credential %s.%s for the executor: %w", spec.User, s.Name, err)
		}
		return valueOf(f)
	case train.SecretObject:
	}
	return "", fmt.Errorf("%s:%s is a Secret of Kubernetes, and the job runs as processes of a machine: want file:PATH or credential:NAME", s.Kind, s.Name)
}

// uidOf returns the number of a user of this machine. People without a name are known by their numbers.
func uidOf(name string) (int, error) {
	u, err := user.Lookup(name)
	if err == nil {
		return strconv.Atoi(u.Uid)
	}
	number, is := strings.CutPrefix(name, "uid")
	uid, wrong := strconv.Atoi(number)
	if !is || wrong != nil || uid <= 0 {
		return 0, fmt.Errorf("the job's user %.80q is no user of this machine: %w", name, err)
	}
	return uid, nil
}

// readFileOf reads a file that a user of the machine has for himself: it and its folder are his, and nobody else may
// read the file or put another one in its place. The file that was checked is the one that is read.
func (p *Preparer) readFileOf(uid int, name, path string) (string, error) {
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", unopened(name, filepath.Dir(path), err)
	}
	defer func() { _ = unix.Close(dir) }()
	var folder, file unix.Stat_t
	if err := unix.Fstat(dir, &folder); err != nil {
		return "", fmt.Errorf("look at the folder of %s: %w", path, err)
	}
	if int(folder.Uid) != uid || folder.Mode&0o022 != 0 {
		return "", fmt.Errorf("%s is not in a folder that belongs to %s and that nobody else can write to", path, name)
	}
	fd, err := unix.Openat(dir, filepath.Base(path), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", unopened(name, path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	if err := unix.Fstat(fd, &file); err != nil {
		return "", errors.Join(fmt.Errorf("look at %s: %w", path, err), f.Close())
	}
	if file.Mode&unix.S_IFMT != unix.S_IFREG || int(file.Uid) != uid || file.Mode&0o077 != 0 {
		return "", errors.Join(fmt.Errorf("%s is no file that belongs to %s and that nobody else can read (chmod 600)", path, name), f.Close())
	}
	if real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil || p.holds(real) {
		return "", errors.Join(fmt.Errorf("%s is in the data folder of Switchyard", path), err, f.Close())
	}
	return valueOf(f)
}

// unopened says why a file of a user could not be opened.
func unopened(name, path string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("this machine does not let %s (or the executor, if jobs run as its user) open %s: %w", name, path, err)
	}
	return &fs.PathError{Op: "open", Path: path, Err: err}
}

// holds reports whether a real path lies in the data folder.
func (p *Preparer) holds(path string) bool {
	data, err := filepath.EvalSymlinks(p.DataDir)
	return err != nil || path == data || strings.HasPrefix(path, strings.TrimSuffix(data, "/")+"/")
}

// valueOf reads a value to its end, without the end of its last line, and closes the file.
func valueOf(f *os.File) (string, error) {
	text, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	err = errors.Join(err, f.Close())
	switch {
	case err != nil:
		return "", fmt.Errorf("read %s: %w", f.Name(), err)
	case len(text) > maxSecret:
		return "", fmt.Errorf("%s has more than %d bytes", f.Name(), maxSecret)
	case strings.ContainsRune(string(text), 0):
		return "", fmt.Errorf("%s has a byte 0, which no variable can hold", f.Name())
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), nil
}
