package oci

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// repository is where the manifests and the chart look for the images.
const repository = "switchyard/"

// Archive is the images of one processor by their names, for one file. It is an OCI layout, as containerd, podman and
// skopeo read it, and says the same in the words of docker load.
type Archive struct {
	Release Release
	Images  map[string]v1.Image
}

// loaded is an entry of the list that docker load reads.
type loaded struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// Tag is a version as a tag, which has no plus sign.
func (r Release) Tag() string { return strings.ReplaceAll(r.Version, "+", "_") }

// Write writes the archive.
func (a Archive) Write(w io.Writer) error {
	blobs := map[string][]byte{}
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	var list []loaded
	for _, name := range sortedKeys(a.Images) {
		descriptor, entry, err := addImage(blobs, a.Images[name])
		if err != nil {
			return fmt.Errorf("add the image %s: %w", name, err)
		}
		reference := repository + name + ":" + a.Release.Tag()
		descriptor.Annotations = map[string]string{
			"io.containerd.image.name":          "docker.io/" + reference,
			"org.opencontainers.image.ref.name": reference,
		}
		entry.RepoTags = []string{reference}
		index.Manifests, list = append(index.Manifests, descriptor), append(list, entry)
	}
	for path, v := range map[string]any{"index.json": index, "manifest.json": list, "oci-layout": map[string]string{"imageLayoutVersion": "1.0.0"}} {
		text, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		blobs[path] = text
	}
	return pack(w, blobs, a.Release.At)
}

func blobPath(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }

// addImage adds the parts of an image to the files of an archive.
func addImage(blobs map[string][]byte, image v1.Image) (v1.Descriptor, loaded, error) {
	var entry loaded
	manifest, err := image.RawManifest()
	if err != nil {
		return v1.Descriptor{}, entry, err
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return v1.Descriptor{}, entry, err
	}
	parsed, err := v1.ParseConfigFile(bytes.NewReader(config))
	if err != nil {
		return v1.Descriptor{}, entry, err
	}
	digest, err := image.Digest()
	if err != nil {
		return v1.Descriptor{}, entry, err
	}
	configDigest, err := image.ConfigName()
	if err != nil {
		return v1.Descriptor{}, entry, err
	}
	blobs[blobPath(digest)], blobs[blobPath(configDigest)] = manifest, config
	entry.Config = blobPath(configDigest)
	layers, err := image.Layers()
	if err != nil {
		return v1.Descriptor{}, entry, err
	}
	for _, layer := range layers {
		path, err := addLayer(blobs, layer)
		if err != nil {
			return v1.Descriptor{}, entry, err
		}
		entry.Layers = append(entry.Layers, path)
	}
	return v1.Descriptor{
		MediaType: types.OCIManifestSchema1, Size: int64(len(manifest)), Digest: digest,
		Platform: &v1.Platform{OS: parsed.OS, Architecture: parsed.Architecture},
	}, entry, nil
}

func addLayer(blobs map[string][]byte, layer v1.Layer) (string, error) {
	digest, err := layer.Digest()
	if err != nil {
		return "", err
	}
	path := blobPath(digest)
	if _, there := blobs[path]; there {
		return path, nil
	}
	packed, err := layer.Compressed()
	if err != nil {
		return "", err
	}
	defer func() { _ = packed.Close() }()
	blobs[path], err = io.ReadAll(packed)
	return path, err
}

// pack writes files in the order of their paths.
func pack(w io.Writer, files map[string][]byte, at time.Time) error {
	out := tar.NewWriter(w)
	for _, path := range sortedKeys(files) {
		data := files[path]
		if err := out.WriteHeader(&tar.Header{Name: path, Mode: 0o644, Size: int64(len(data)), ModTime: at, Format: tar.FormatUSTAR}); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		if _, err := out.Write(data); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}
