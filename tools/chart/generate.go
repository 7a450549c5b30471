package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// written is the part of the chart that a person writes.
const written = "deploy/chart"

// Name is the name of the chart.
const Name = "switchyard"

// Chart is the files of a chart, by their paths in it.
type Chart struct {
	Version string
	Files   map[string][]byte
}

// Generate makes the chart of a version from the manifests of a repository.
func Generate(root, version string) (Chart, error) {
	c := Chart{Version: version, Files: map[string][]byte{}}
	if err := c.addWritten(root); err != nil {
		return c, err
	}
	base, err := build(root)
	if err != nil {
		return c, err
	}
	variants := map[string][]object{}
	for _, toggle := range toggles() {
		if variants[toggle], err = build(root, toggle); err != nil {
			return c, err
		}
	}
	table := newTemplates()
	for i := range base {
		base[i] = table.apply(base[i])
	}
	for _, objects := range variants {
		for i := range objects {
			objects[i] = table.apply(objects[i])
		}
	}
	if err := table.unfound(); err != nil {
		return c, err
	}
	return c, c.addObjects(base, variants)
}

// addWritten adds what a person wrote, with the version in the place of the one of a chart that is not released.
func (c Chart) addWritten(root string) error {
	dir := os.DirFS(filepath.Join(root, written))
	return fs.WalkDir(dir, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(dir, path)
		if err != nil {
			return fmt.Errorf("read the chart: %w", err)
		}
		if path == "Chart.yaml" {
			text = fmt.Appendf(text, "version: %s\nappVersion: %q\n", c.Version, c.Version)
		}
		c.Files[path] = text
		return nil
	})
}

// addObjects adds a template for each object: of the base, with what toggles change of it, and of one toggle alone.
func (c Chart) addObjects(base []object, variants map[string][]object) error {
	inBase := map[string]bool{}
	for _, o := range base {
		inBase[o.key()] = true
		changed := map[string]object{}
		for toggle, objects := range variants {
			i := slices.IndexFunc(objects, func(v object) bool { return v.key() == o.key() })
			if i < 0 {
				return fmt.Errorf("the component %s removes %s, which a value of a chart cannot do", toggle, o.key())
			}
			if objects[i].yaml != o.yaml {
				changed[toggle] = objects[i]
			}
		}
		text, err := merge(o, changed)
		if err != nil {
			return err
		}
		if err := c.addObject(o, text); err != nil {
			return err
		}
	}
	for _, toggle := range toggles() {
		for _, o := range variants[toggle] {
			if inBase[o.key()] {
				continue
			}
			if err := c.addObject(o, when(toggle, o.yaml)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c Chart) addObject(o object, text string) error {
	// Helm makes the namespace of the release.
	if o.kind == "Namespace" && o.name == Name {
		return nil
	}
	path := fmt.Sprintf("templates/%s-%s.yaml", strings.TrimPrefix(o.name, Name+"-"), strings.ToLower(o.kind))
	if o.kind == "CustomResourceDefinition" {
		path = "crds/" + o.name + ".yaml"
	}
	if _, twice := c.Files[path]; twice {
		return fmt.Errorf("two objects have the template %s, the second is %s: give one another name", path, o.key())
	}
	c.Files[path] = []byte(text)
	return nil
}

// Write writes the chart as a folder and as an archive into dir, and returns the archive's path.
func (c Chart) Write(dir string) (string, error) {
	folder := filepath.Join(dir, Name)
	if err := os.RemoveAll(folder); err != nil {
		return "", fmt.Errorf("remove the last chart: %w", err)
	}
	for path, text := range c.Files {
		path = filepath.Join(folder, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return "", fmt.Errorf("make a folder of the chart: %w", err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return "", fmt.Errorf("write the chart: %w", err)
		}
	}
	packed, err := c.pack()
	if err != nil {
		return "", fmt.Errorf("pack the chart: %w", err)
	}
	archive := filepath.Join(dir, Name+"-"+c.Version+".tgz")
	if err := os.WriteFile(archive, packed, 0o644); err != nil {
		return "", fmt.Errorf("write the archive: %w", err)
	}
	return archive, nil
}

// pack returns the archive that helm installs. The same chart gives the same bytes, which Helm's own packer, with its
// times of now, does not.
func (c Chart) pack() ([]byte, error) {
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	archive := tar.NewWriter(compressed)
	for _, path := range slices.Sorted(maps.Keys(c.Files)) {
		text := c.Files[path]
		if err := archive.WriteHeader(&tar.Header{Name: Name + "/" + path, Mode: 0o644, Size: int64(len(text))}); err != nil {
			return nil, err
		}
		if _, err := archive.Write(text); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
