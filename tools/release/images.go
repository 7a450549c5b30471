package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/switchyard-dl/switchyard/tools/release/oci"
)

// services are those with an image and a program of their own.
func services() []string {
	return []string{"admission", "profiler", "planner", "executor", "nodeagent", "energy", "experiments", "web"}
}

// beside are the programs of an image beside its own, which is the first.
func beside(image string) []string {
	switch image {
	case "switchyard":
		return []string{"switchyard-server", "switchyard-supervisor"}
	case "executor":
		return []string{"switchyard-supervisor", "switchyard-trainer"}
	default:
		return nil
	}
}

// aside returns the files of a release that are neither programs nor packages of them: images, what programs are made
// of, the chart, and the Python distribution.
func (r *release) aside() ([]artifact, error) {
	python, err := r.pythonVersion()
	if err != nil {
		return nil, err
	}
	all := []artifact{
		{"switchyard-" + r.version + ".tgz", r.chart},
		{"switchyard_train-" + python + "-py3-none-any.whl", r.python("build_wheel")},
		{"switchyard_train-" + python + ".tar.gz", r.python("build_sdist")},
	}
	for _, t := range servers() {
		all = append(all,
			artifact{fmt.Sprintf("switchyard-images_%s_%s_%s.tar", r.version, t.os, t.arch), r.images(t)},
			artifact{fmt.Sprintf("switchyard_%s_%s_%s.cdx.json", r.version, t.os, t.arch), r.materials(t)})
	}
	return all, nil
}

func (r *release) says() oci.Release {
	return oci.Release{Version: r.version, Revision: r.revision, At: r.at}
}

// images writes the images of all services for a target into one archive.
func (r *release) images(t target) func(context.Context, io.Writer) error {
	return func(ctx context.Context, w io.Writer) error {
		base, err := oci.Base()
		if err != nil {
			return err
		}
		all := oci.Archive{Release: r.says(), Images: map[string]v1.Image{}}
		for _, name := range append(services(), "switchyard") {
			if all.Images[name], err = r.image(ctx, t, name, base); err != nil {
				return fmt.Errorf("make the image %s: %w", name, err)
			}
		}
		return all.Write(w)
	}
}

func (r *release) image(ctx context.Context, t target, name string, base []oci.File) (v1.Image, error) {
	own, title := "switchyard-"+name, "Switchyard: "+name
	if name == "switchyard" {
		own, title = name, "Switchyard: the command line"
	}
	image := oci.Image{Name: name, Title: title, Arch: t.arch}
	for _, program := range append([]string{own}, beside(name)...) {
		path, err := r.program(ctx, t, program)
		if err != nil {
			return nil, err
		}
		file, err := oci.Program(path, program)
		if err != nil {
			return nil, err
		}
		image.Programs = append(image.Programs, file)
		if programs()[program].cgo {
			if image.Libraries, err = oci.Libraries(ctx, path, func() (string, error) { return compiler(t) }); err != nil {
				return nil, err
			}
		}
	}
	if name == "executor" {
		files, err := library(r.source)
		if err != nil {
			return nil, err
		}
		image.Programs = append(image.Programs, files...)
	}
	return image.Build(r.says(), base)
}

// library returns the Python packages, for jobs that run as processes of the executor's container.
func library(source string) ([]oci.File, error) {
	var all []oci.File
	root := os.DirFS(filepath.Join(source, "libs/python"))
	for _, pkg := range []string{"switchyard", "kubernetesdlprofile"} {
		err := fs.WalkDir(root, pkg, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".py" && entry.Name() != "py.typed" {
				return err
			}
			data, err := fs.ReadFile(root, path)
			all = append(all, oci.File{Path: "opt/switchyard/python/" + path, Data: data, Mode: 0o644})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read the Python packages: %w", err)
		}
	}
	return all, nil
}

// materials writes what all programs of a target are made of.
func (r *release) materials(t target) func(context.Context, io.Writer) error {
	return func(ctx context.Context, w io.Writer) error {
		list := oci.Materials{Release: r.says()}
		for name := range programs() {
			path, err := r.program(ctx, t, name)
			if err != nil {
				return err
			}
			if err := list.Add(path); err != nil {
				return err
			}
		}
		return list.Write(w)
	}
}

// chart writes the Helm chart, which a program of a module of its own makes.
func (r *release) chart(ctx context.Context, w io.Writer) error {
	archive, err := output(ctx, filepath.Join(r.source, "tools/chart"), "go", "run", ".", "-root", r.source, "-version", r.version, "-out", filepath.Join(r.stage, "chart"))
	if err != nil {
		return err
	}
	return copyOf(w, archive)
}

// pythonVersion is the version that the Python distribution says. That of a release with a tag is the tag's.
func (r *release) pythonVersion() (string, error) {
	path := filepath.Join(r.source, "libs/python/switchyard/__init__.py")
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the version of the Python distribution: %w", err)
	}
	found := regexp.MustCompile(`(?m)^__version__ = "(.+)"$`).FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("no __version__ in %s", path)
	}
	said := string(found[1])
	if !strings.Contains(r.version, "-") && said != r.version {
		return "", fmt.Errorf("the release is %s, but __version__ in libs/python/switchyard/__init__.py is %s: correct it, then set the tag", r.version, said)
	}
	return said, nil
}

// python writes what a function of the Python build back end makes.
func (r *release) python(build string) func(context.Context, io.Writer) error {
	return func(ctx context.Context, w io.Writer) error {
		const interpreter = "python3"
		if _, err := exec.LookPath(interpreter); err != nil {
			return &noCompilerError{interpreter, interpreter}
		}
		program := "import sys, build_backend as b; print(b." + build + "(sys.argv[1]))"
		name, err := output(ctx, filepath.Join(r.source, "libs/python"), interpreter, "-B", "-c", program, r.stage)
		if err != nil {
			return err
		}
		return copyOf(w, filepath.Join(r.stage, name))
	}
}

func copyOf(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read what was made: %w", err)
	}
	_, err = io.Copy(w, f)
	return errors.Join(err, f.Close())
}
