// Package oci packs programs into container images and images into archives, without a container engine. The same
// programs give the same bytes.
package oci

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nobody is the user of all images, and of the folder that they may write to.
const nobody = 65532

// Release is what all images of a release say.
type Release struct {
	Version, Revision string
	At                time.Time
}

// File is a file of an image: a path in it, and what is there.
type File struct {
	Path string
	Data []byte
	// Mode is that of a tar header; a folder has no data and a path that ends in a slash.
	Mode  int64
	Owner int
}

// Image is one image: programs, and nothing that they do not need.
type Image struct {
	Name, Title string
	Arch        string
	Programs    []File
	// Libraries is the C library, for programs that need one.
	Libraries []File
}

// Base is what every image has: certificates of the public authorities, a user, and folders.
func Base() ([]File, error) {
	certificates, err := authorities()
	if err != nil {
		return nil, err
	}
	return []File{
		{Path: "etc/passwd", Data: []byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/var/lib/switchyard:/sbin/nologin\n"), Mode: 0o644},
		{Path: "etc/group", Data: []byte("root:x:0:\nnonroot:x:65532:\n"), Mode: 0o644},
		{Path: "etc/ssl/certs/ca-certificates.crt", Data: certificates, Mode: 0o644},
		{Path: "tmp/", Mode: 0o1777},
		{Path: "var/lib/switchyard/", Mode: 0o755, Owner: nobody},
	}, nil
}

// Build makes the image. The first program is what it runs.
func (i Image) Build(r Release, base []File) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, part := range []struct {
		what  string
		files []File
	}{{"folders and certificates", base}, {"the C library", i.Libraries}, {i.Title, i.Programs}} {
		if len(part.files) == 0 {
			continue
		}
		layer, err := layerOf(part.files, r.At)
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", part.what, err)
		}
		added := mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: r.At}, CreatedBy: "switchyard release", Comment: part.what}}
		if image, err = mutate.Append(image, added); err != nil {
			return nil, fmt.Errorf("add %s: %w", part.what, err)
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the configuration of an image: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", i.Arch, v1.Time{Time: r.At}
	config.Config = v1.Config{
		Entrypoint: []string{"/" + i.Programs[0].Path},
		User:       fmt.Sprintf("%d:%d", nobody, nobody),
		Env:        []string{"PATH=/usr/local/bin:/usr/bin:/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt", "HOME=/var/lib/switchyard"},
		Labels:     i.labels(r),
	}
	return mutate.ConfigFile(image, config)
}

func (i Image) labels(r Release) map[string]string {
	const home = "https://github.com/switchyard-dl/switchyard"
	of := func(key string) string { return "org.opencontainers.image." + key }
	return map[string]string{
		of("title"): i.Name, of("description"): i.Title, of("version"): r.Version, of("revision"): r.Revision,
		of("created"): r.At.UTC().Format(time.RFC3339), of("licenses"): "Apache-2.0", of("source"): home, of("url"): home,
	}
}

// layerOf packs files and the folders above them, in the order of their paths.
func layerOf(files []File, at time.Time) (v1.Layer, error) {
	all := map[string]File{}
	for _, f := range files {
		for dir := path.Dir(strings.TrimSuffix(f.Path, "/")); dir != "."; dir = path.Dir(dir) {
			if _, named := all[dir+"/"]; !named {
				all[dir+"/"] = File{Path: dir + "/", Mode: 0o755}
			}
		}
		all[f.Path] = f
	}
	var packed bytes.Buffer
	out := tar.NewWriter(&packed)
	for _, name := range sortedKeys(all) {
		f := all[name]
		header := &tar.Header{Name: f.Path, Mode: f.Mode, Uid: f.Owner, Gid: f.Owner, Size: int64(len(f.Data)), ModTime: at, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if strings.HasSuffix(f.Path, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := out.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := out.Write(f.Data); err != nil {
			return nil, err
		}
	}
	if err := out.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// Program reads a program for an image.
func Program(from, as string) (File, error) {
	data, err := os.ReadFile(from)
	if err != nil {
		return File{}, fmt.Errorf("read a program: %w", err)
	}
	return File{Path: "usr/local/bin/" + as, Data: data, Mode: 0o755}, nil
}
