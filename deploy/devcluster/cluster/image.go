package cluster

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// PauseImage holds the namespaces of every pod.
const PauseImage = "localhost/switchyard/pause:dev"

// Image is an image of one layer around one static program.
type Image struct {
	// Name is the reference under which pods ask for it.
	Name string
	// Binary is the program, which becomes the entry point under its own name.
	Binary string
	// Files are further files, by their path in the image; the values are paths here.
	Files map[string]string
}

// LoadImage gives the node an image archive as docker save or WriteTo makes it. Pods name it with imagePullPolicy
// IfNotPresent or Never.
func (c *Cluster) LoadImage(ctx context.Context, archive string) error {
	if !c.Node {
		return errors.New("load image: this cluster has no real node")
	}
	command := exec.CommandContext(ctx, "ctr", "--address", c.ContainerdSocket(), "--namespace", "k8s.io", "images", "import", archive)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("import image %s: %w: %s", archive, err, strings.TrimSpace(string(output)))
	}
	return nil
}

// BuildImage makes an image and gives it to the node.
func (c *Cluster) BuildImage(ctx context.Context, image Image) error {
	archive, err := os.CreateTemp(c.path(imagesDir), "image-*.tar")
	if err != nil {
		return fmt.Errorf("make image archive: %w", err)
	}
	defer func() {
		_ = archive.Close()
		_ = os.Remove(archive.Name())
	}()
	if err := image.Write(archive); err != nil {
		return err
	}
	return c.LoadImage(ctx, archive.Name())
}

// loadPauseImage builds the pause image from the program beside the executable.
func (c *Cluster) loadPauseImage(ctx context.Context) error {
	return c.BuildImage(ctx, Image{Name: PauseImage, Binary: pauseExecutable(c.Executable)})
}

func pauseExecutable(executable string) string {
	return filepath.Join(filepath.Dir(executable), "devcluster-pause")
}

// Write writes the image as an archive like docker save's.
func (i Image) Write(out io.Writer) error {
	layer, err := i.layer()
	if err != nil {
		return err
	}
	config, err := i.config(layer)
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{i.Name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return fmt.Errorf("encode image manifest: %w", err)
	}
	archive := tar.NewWriter(out)
	for _, file := range []struct {
		name string
		data []byte
	}{{"manifest.json", manifest}, {"config.json", config}, {"layer.tar", layer}} {
		if err := addFile(archive, file.name, 0o644, file.data); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("write image archive: %w", err)
	}
	return nil
}

func (i Image) config(layer []byte) ([]byte, error) {
	sum := sha256.Sum256(layer)
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config": map[string]any{
			"Entrypoint": []string{"/" + filepath.Base(i.Binary)},
			"Env":        []string{"PATH=/"},
			"WorkingDir": "/",
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return nil, fmt.Errorf("encode image config: %w", err)
	}
	return config, nil
}

// layer is the image's files and an empty /tmp, which programs expect.
func (i Image) layer() ([]byte, error) {
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	temporary := &tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777, ModTime: time.Unix(0, 0)}
	if err := archive.WriteHeader(temporary); err != nil {
		return nil, fmt.Errorf("write image layer: %w", err)
	}
	if err := copyFile(archive, filepath.Base(i.Binary), i.Binary); err != nil {
		return nil, err
	}
	for name, source := range i.Files {
		if err := copyFile(archive, strings.TrimPrefix(name, "/"), source); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("write image layer: %w", err)
	}
	return layer.Bytes(), nil
}

func copyFile(archive *tar.Writer, name, source string) error {
	info, err := os.Stat(source)
	if err != nil {
		return fmt.Errorf("read file of image: %w", err)
	}
	data, err := os.ReadFile(source)
	if err != nil {
		return fmt.Errorf("read file of image: %w", err)
	}
	return addFile(archive, name, int64(info.Mode().Perm()), data)
}

func addFile(archive *tar.Writer, name string, mode int64, data []byte) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data)), ModTime: time.Unix(0, 0)}
	if err := archive.WriteHeader(header); err != nil {
		return fmt.Errorf("write %s of image: %w", name, err)
	}
	if _, err := archive.Write(data); err != nil {
		return fmt.Errorf("write %s of image: %w", name, err)
	}
	return nil
}
