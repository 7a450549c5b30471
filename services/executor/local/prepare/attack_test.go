package prepare

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// preparer prepares attempts in a fresh folder.
func preparer(t *testing.T) *Preparer {
	t.Helper()
	return new(New(installation.Layout{DataDir: t.TempDir()}, Bounds{User: attempt.Self()}))
}

// The path of the agent's socket comes from a node's record: it shows no other folder.
func TestANodeShowsNoFolders(t *testing.T) {
	for _, socket := range []string{"/", "/etc/passwd", "job-api/job.sock", "/var/run/docker.sock"} {
		if dir := socketFolder(socket); dir != "" {
			t.Errorf("%s shows %s", socket, dir)
		}
	}
}

// What a user sets reaches the program in the container, and neither the client of the container runtime nor its
// arguments.
func TestTheClientOfContainersGetsNothingOfTheUser(t *testing.T) {
	p := preparer(t)
	s := slots()
	s.Spec.Image = "image"
	s.Spec.Env = map[string]string{"LD_PRELOAD": "/tmp/evil.so", "DOCKER_HOST": "tcp://127.0.0.1:2375", "PATH": "/tmp/evil", "HTTPS_PROXY": "http://evil", "SECRET": "xyzzy"}
	s.Base = []string{"PATH=/usr/bin", "HOME=/home/me", "DOCKER_HOST=unix:///run/docker.sock", "AWS_SECRET_ACCESS_KEY=hidden", "LD_LIBRARY_PATH=/opt"}
	if err := installation.MakeFolder(p.Attempt(s.Job, 3)); err != nil {
		t.Fatal(err)
	}
	if err := p.Bounds.writeEnvironments(p.Layout, s); err != nil {
		t.Fatal(err)
	}
	made := p.Bounds.container(s, p.Layout, 0)
	if got := fmt.Sprint(made.Env); got != "[DOCKER_HOST=unix:///run/docker.sock HOME=/home/me PATH=/usr/bin]" {
		t.Errorf("the client gets %s", got)
	}
	if args := strings.Join(made.Args, " "); strings.Contains(args, "evil") || strings.Contains(args, "xyzzy") {
		t.Errorf("arguments %s", args)
	}
	path := environmentFile(p.Layout, s, 0)
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), "\nLD_PRELOAD=/tmp/evil.so\n") || !strings.Contains(string(text), "\nSECRET=xyzzy\n") {
		t.Errorf("environment %s, %v", text, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: others can read it", info, err)
	}
	s.Spec.Env = map[string]string{"A": "1\nJOB_UUID=forged"}
	if err := p.Bounds.writeEnvironments(p.Layout, s); !errors.Is(err, errLines) {
		t.Errorf("a variable of two lines: %v", err)
	}
}

// all returns the secrets of all kinds.
func all(p *Preparer, spec train.Spec) (map[string]string, error) {
	return p.Secrets(spec, func(train.SecretKind) bool { return true })
}

// A job gets the secrets of its user, and those of nobody else, whatever the executor can read.
func TestSecretsAreTheirUsersOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root, who alone can make files of other users")
	}
	const ann, bob = 64001, 64002
	p := preparer(t)
	dir := t.TempDir()
	place := func(folder string, owner int, mode os.FileMode, file string, fileOwner int, fileMode os.FileMode) string {
		t.Helper()
		folder = filepath.Join(dir, folder)
		path := filepath.Join(folder, file)
		err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(path, []byte("xyzzy\n"), 0o600), os.Chown(path, fileOwner, fileOwner), os.Chmod(path, fileMode),
			os.Chown(folder, owner, owner), os.Chmod(folder, mode))
		if err != nil {
			t.Fatal(err)
		}
		return "file:" + path
	}
	mine := place("ann", ann, 0o755, "token", ann, 0o600)
	link, pipe, inner := filepath.Join(dir, "ann", "link"), filepath.Join(dir, "ann", "pipe"), p.DataDir+"/keys/operator.nk"
	err := errors.Join(os.MkdirAll(filepath.Dir(inner), 0o700), os.WriteFile(inner, []byte("SU"), 0o600), os.Symlink(filepath.Join(dir, "ann", "token"), link), unix.Mkfifo(pipe, 0o600),
		os.Chown(pipe, ann, ann), os.Chown(inner, ann, ann), os.Chown(filepath.Dir(inner), ann, ann))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("CREDENTIALS_DIRECTORY", filepath.Dir(strings.TrimPrefix(place("loaded", 0, 0o700, userOf(ann)+".wandb", 0, 0o400), "file:")))
	get := func(uid int, source string) (string, error) {
		values, err := all(p, train.Spec{User: userOf(uid), SecretEnv: map[string]string{"TOKEN": source}})
		return values["TOKEN"], err
	}
	for _, source := range []string{mine, "credential:wandb"} {
		if value, err := get(ann, source); value != "xyzzy" || err != nil {
			t.Errorf("%s: %q, %v", source, value, err)
		}
		if value, err := get(bob, source); !errors.Is(err, launch.ErrSecret) {
			t.Errorf("%s given to another user: %q, %v", source, value, err)
		}
	}
	for what, source := range map[string]string{
		"a file that others can read":              place("ann", ann, 0o755, "open", ann, 0o640),
		"a file of another user":                   place("ann", ann, 0o755, "bobs", bob, 0o600),
		"a folder that others can write to":        place("shared", ann, 0o775, "token", ann, 0o600),
		"a folder of another user":                 place("bob", bob, 0o755, "token", ann, 0o600),
		"a link":                                   "file:" + link,
		"a pipe":                                   "file:" + pipe,
		"a key of the data folder":                 "file:" + inner,
		"a file that is not there":                 mine + "s",
		"a credential that nobody has loaded":      "credential:other",
		"a Secret where there is no Kubernetes":    "secret:a/b",
		"a path that leads elsewhere":              mine + "/../token",
		"a value that is no path to anything here": "token",
	} {
		if value, err := get(ann, source); !errors.Is(err, launch.ErrSecret) || strings.Contains(err.Error(), "xyzzy") {
			t.Errorf("%s: %q, %v", what, value, err)
		}
	}
	if _, err := all(p, train.Spec{User: "nobody-of-this-name", SecretEnv: map[string]string{"TOKEN": mine}}); !errors.Is(err, launch.ErrSecret) {
		t.Errorf("a user whom the machine does not know: %v", err)
	}
	s := slots()
	s.Secrets = map[string]string{"TOKEN": "xyzzy", "JOB_UUID": "forged"}
	if env := environment(s, 0); !slices.Contains(env, "TOKEN=xyzzy") || slices.Contains(env, "JOB_UUID=forged") {
		t.Errorf("the job gets %s", env)
	}
}

// An executor that was taken over gives a person's job no variable that its signed spec does not take from a
// credential.
func TestAnExecutorGivesAPersonsJobCredentialsAlone(t *testing.T) {
	p := preparer(t)
	said := map[string]string{"LD_PRELOAD": "/tmp/x.so", "PLAIN": "forged", "KEY": "of systemd", "POD": "forged"}
	spec := train.Spec{Env: map[string]string{"PLAIN": "x"}, SecretEnv: map[string]string{"KEY": "credential:wandb", "POD": "secret:a/b"}}
	if values, err := p.ownSecrets(spec, said); err != nil || len(values) != 1 || values["KEY"] != "of systemd" {
		t.Errorf("%v, %v", values, err)
	}
	said["TOKEN"], spec.SecretEnv["TOKEN"] = "forged", "file:/nonexistent/token"
	if values, err := p.ownSecrets(spec, said); !errors.Is(err, launch.ErrSecret) {
		t.Errorf("a file's value is the executor's: %v, %v", values, err)
	}
}

func userOf(uid int) string { return fmt.Sprintf("uid%d", uid) }

// A folder that a user named, and replaced by a link after it was checked, shows his job nothing of the data folder.
func TestALinkShowsNothingOfTheDataFolder(t *testing.T) {
	p := preparer(t)
	s := slots()
	s.Work, s.Snapshots, s.Custom = p.Work(s.Job), p.Snapshots(s.Job), filepath.Join(t.TempDir(), "code")
	err := errors.Join(installation.MakeFolder(s.Work), installation.MakeFolder(s.Snapshots), installation.MakeFolder(p.Job("ann-1")), os.Symlink(p.Job("ann-1"), s.Custom))
	if err != nil {
		t.Fatal(err)
	}
	if _, kept := p.visible(s); !slices.Contains(kept, s.Work) || !slices.Contains(kept, s.Snapshots) || slices.Contains(kept, p.Job("ann-1")) {
		t.Errorf("the job sees %s", kept)
	}
}
