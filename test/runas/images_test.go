package runas

import (
	"bytes"
	"errors"
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
	image := l.image(l.ann)
	secret, shared := filepath.Join(l.bob.home, "secret"), filepath.Join(l.ann.home, "shared")
	l.must(errors.Join(os.WriteFile(secret, []byte("his"), 0o600), os.Chown(secret, l.bob.uid, l.bob.gid)))
	l.must(errors.Join(os.MkdirAll(shared, 0o700), os.WriteFile(filepath.Join(shared, "key"), []byte("hers"), 0o600)))
	for _, path := range []string{shared, filepath.Join(shared, "key")} {
		l.must(os.Chown(path, l.ann.uid, l.ann.gid))
	}
	l.submit(l.ann, "image", []string{"--build", "--work-dir", filepath.Join(l.ann.home, "image"), "--custom-dir", shared}, "/inside", "/custom/key", secret, "/etc/shadow")
	job, out := l.ended(l.ann, "image")
	if job.State != train.StateSucceeded || job.Spec.Image != image {
		l.t.Fatalf("%s in %s, want %s: %s\n%s", job.State, job.Spec.Image, image, job.Message, out)
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
	l.submit(l.bob, "image-steals", []string{"--image", image, "--custom-dir", shared}, "/inside", "/custom/key")
	if job, out := l.ended(l.bob, "image-steals"); job.State != train.StateFailed || strings.Contains(out, "hers") {
		l.t.Errorf("bob's image with ann's folder: %s: %s\n%s", job.State, job.Message, out)
	}
	// What is killed leaves nothing.
	l.submit(l.ann, "image-stays", []string{"--image", image, "--max-restarts", "0", "--env", "STAY=1"}, "/inside")
	supervisor := l.runs("image-stays")
	l.until("the program in the image", func() bool { return len(called("/inside\x00")) > 0 })
	l.must(syscall.Kill(supervisor, syscall.SIGKILL))
	l.ended(l.ann, "image-stays")
	l.until("the end of the program in the image", func() bool { return len(called("/inside\x00")) == 0 })
}

// image builds an image of one program in the store of a person, and returns its digest.
func (l *lab) image(p person) string {
	l.t.Helper()
	dir, run := filepath.Join(p.home, "image"), filepath.Join(p.home, "run")
	l.must(errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(run, 0o700), os.Chown(run, p.uid, p.gid)))
	cmd := exec.CommandContext(l.ctx, "go", "build", "-ldflags", "-s -w", "-o", filepath.Join(dir, "inside"), "./inside")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("build what the image runs: %v\n%s", err, out)
	}
	l.must(os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch\nCOPY inside /inside\n"), 0o644))
	build := l.command(p, filepath.Join(l.programs, "switchyard"), "build", dir)
	var said bytes.Buffer
	build.Stderr = &said
	reference, err := build.Output()
	if err != nil {
		l.t.Skipf("podman makes no image here: %v: %s", err, said.String())
	}
	return strings.TrimSpace(string(reference))
}
