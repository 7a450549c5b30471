package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// unpack writes the files of a tar into a folder.
func unpack(t *testing.T, in io.Reader, dir string) {
	t.Helper()
	for archive := tar.NewReader(in); ; {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, head.Name)
		if head.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		data, err := io.ReadAll(archive)
		if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, head.FileInfo().Mode()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// imagesOf writes the images of a target, and returns the archive's path and the images as an OCI layout has them.
func imagesOf(t *testing.T, r *release, at target) (string, map[string]v1.Image) {
	t.Helper()
	dir := t.TempDir()
	archive := filepath.Join(dir, "images.tar")
	if err := r.make(t.Context(), artifact{"images.tar", r.images(at)}, archive); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	unpack(t, file, filepath.Join(dir, "layout"))
	index, err := layout.ImageIndexFromPath(filepath.Join(dir, "layout"))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	images := map[string]v1.Image{}
	for _, m := range manifest.Manifests {
		if m.Platform.Architecture != at.arch {
			t.Errorf("an image for %s in an archive for %s", m.Platform, at.arch)
		}
		if images[m.Annotations["io.containerd.image.name"]], err = index.Image(m.Digest); err != nil {
			t.Fatal(err)
		}
	}
	return archive, images
}

func TestImagesAreTheSameForDockerAndForOthers(t *testing.T) {
	archive, images := imagesOf(t, of(t), servers()[0])
	if len(images) != len(services())+1 {
		t.Errorf("%d images", len(images))
	}
	for reference, image := range images {
		tag, err := name.NewTag(reference)
		if err != nil {
			t.Fatal(err)
		}
		docker, err := tarball.ImageFromPath(archive, &tag)
		if err != nil {
			t.Fatalf("%s: %v", reference, err)
		}
		ours, err := image.ConfigName()
		if err != nil {
			t.Fatal(err)
		}
		if theirs, err := docker.ConfigName(); err != nil || theirs != ours {
			t.Errorf("%s: docker finds %s, %v, others %s", reference, theirs, err, ours)
		}
	}
	if err := validate.Image(images["docker.io/switchyard/executor:1.2.3-rc.1"]); err != nil {
		t.Error(err)
	}
}

func TestAnImageSaysWhatItIsAndRunsAsNobody(t *testing.T) {
	_, images := imagesOf(t, of(t), servers()[1])
	image := images["docker.io/switchyard/planner:1.2.3-rc.1"]
	if image == nil {
		t.Fatalf("no planner among %v", images)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c := config.Config; c.User != "65532:65532" || c.Entrypoint[0] != "/usr/local/bin/switchyard-planner" || c.Labels["org.opencontainers.image.version"] != "1.2.3-rc.1" {
		t.Errorf("the configuration is %+v", c)
	}
	if config.Architecture != "arm64" || config.Created.Year() != 2026 {
		t.Errorf("the image is of %s, for %s", config.Created, config.Architecture)
	}
}

// TestTheNodeAgentBringsItsCLibrary runs it with nothing but what is in its image.
func TestTheNodeAgentBringsItsCLibrary(t *testing.T) {
	r := of(t)
	for _, at := range servers() {
		_, images := imagesOf(t, r, at)
		root := t.TempDir()
		files := mutate.Extract(images["docker.io/switchyard/nodeagent:1.2.3-rc.1"])
		unpack(t, files, root)
		if err := files.Close(); err != nil {
			t.Fatal(err)
		}
		certificates, err := os.ReadFile(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
		if err != nil || strings.Count(string(certificates), "BEGIN CERTIFICATE") < 50 {
			t.Errorf("the certificates: %v, %d bytes", err, len(certificates))
		}
		if runtime.GOARCH != "amd64" || at.arch != runtime.GOARCH {
			continue
		}
		said, err := exec.CommandContext(t.Context(), filepath.Join(root, "lib64/ld-linux-x86-64.so.2"), "--inhibit-cache",
			"--library-path", filepath.Join(root, "lib/x86_64-linux-gnu"), filepath.Join(root, "usr/local/bin/switchyard-nodeagent")).CombinedOutput()
		if err != nil || string(said) != "small\n" {
			t.Errorf("the program says %q, %v", said, err)
		}
	}
}

func TestAReleaseIsNamedLikeItsPythonDistribution(t *testing.T) {
	r := of(t)
	r.version = "99.0.0"
	if _, err := r.artifacts(); err == nil || !strings.Contains(err.Error(), "__version__") {
		t.Errorf("another version of the Python distribution: error %v", err)
	}
}
