package runas

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// images runs an image of ann's with her rights alone.
func images(l *lab) {
	for _, program := range []string{"podman", "crun", "newuidmap"} {
		if _, err := exec.LookPath(program); err != nil {
			l.t.Skipf("no %s", program)
		}
	}
	l.image(l.ann)
	secret, shared := filepath.Join(l.bob.home, "secret"), filepath.Join(l.ann.home, "shared")
	l.must(errors.Join(os.WriteFile(secret, []byte("his"), 0o600), os.Chown(secret, l.bob.uid, l.bob.gid)))
	l.must(errors.Join(os.MkdirAll(shared, 0o700), os.WriteFile(filepath.Join(shared, "key"), []byte("hers"), 0o600)))
	for _, path := range []string{shared, filepath.Join(shared, "key")} {
		l.must(os.Chown(path, l.ann.uid, l.ann.gid))
	}
	l.submit(l.ann, "image", []string{"--image", imageName, "--custom-dir", shared}, "/inside", "/custom/key", secret, "/etc/shadow")
	job, out := l.ended(l.ann, "image")
	if job.State != train.StateSucceeded {
		l.t.Fatalf("%s: %s\n%s", job.State, job.Message, out)
	}
	contains(l.t, "an image", out, "read: hers", "refused: open "+secret, "refused: open /etc/shadow",
		"CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "saved: <nil>", "the machine's loopback: dial tcp", "job API: 404 {\"error\"")
	made, err := filepath.Glob(l.path("jobs/jobs/image/own/snapshots/*/made"))
	l.must(err)
	if len(made) == 0 { // by the job's secret name, and by its id
		l.t.Fatalf("the image has saved %v", made)
	}
	info, err := os.Stat(made[0])
	if err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != l.ann.uid {
		l.t.Errorf("what the image has saved is not ann's: %v", err)
	}
	// Folders of others are no volumes, and another's image is not found.
	l.submit(l.bob, "image-steals", []string{"--image", imageName, "--custom-dir", shared}, "/inside", "/custom/key")
	if job, out := l.ended(l.bob, "image-steals"); job.State != train.StateFailed || strings.Contains(out, "hers") {
		l.t.Errorf("bob's image with ann's folder: %s: %s\n%s", job.State, job.Message, out)
	}
	// What is killed leaves nothing.
	l.submit(l.ann, "image-stays", []string{"--image", imageName, "--max-restarts", "0", "--env", "STAY=1"}, "/inside")
	supervisor := l.runs("image-stays")
	l.until("the program in the image", func() bool { return len(called("/inside\x00")) > 0 })
	l.must(syscall.Kill(supervisor, syscall.SIGKILL))
	l.ended(l.ann, "image-stays")
	l.until("the end of the program in the image", func() bool { return len(called("/inside\x00")) == 0 })
}

const imageName = "localhost/switchyard-inside:1"

// image makes an image of one program in the store of a person.
func (l *lab) image(p person) {
	l.t.Helper()
	program := l.path("inside")
	cmd := exec.CommandContext(l.ctx, "go", "build", "-ldflags", "-s -w", "-o", program, "./inside")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("build what the image runs: %v\n%s", err, out)
	}
	data, err := os.ReadFile(program)
	l.must(err)
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	l.must(errors.Join(w.WriteHeader(&tar.Header{Name: "inside", Mode: 0o755, Size: int64(len(data))})))
	_, err = w.Write(data)
	l.must(errors.Join(err, w.Close(), os.WriteFile(l.path("image.tar"), archive.Bytes(), 0o644)))
	run := filepath.Join(p.home, "run")
	l.must(errors.Join(os.MkdirAll(run, 0o700), os.Chown(run, p.uid, p.gid)))
	load := l.command(p, "podman", "import", l.path("image.tar"), imageName)
	load.Env = append(load.Env, "XDG_RUNTIME_DIR="+run)
	if out, err := load.CombinedOutput(); err != nil {
		l.t.Skipf("podman makes no image here: %v: %s", err, fmt.Sprint(string(out)))
	}
}
