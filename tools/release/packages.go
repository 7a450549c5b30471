package main

import (
	"context"
	"debug/elf"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // a format
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // a format

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/install/units"
)

// The scripts of the packages, with the names between @ that the units have too.
var (
	//go:embed package/postinst
	postinst string
	//go:embed package/prerm
	prerm string
	//go:embed package/postrm
	postrm string
)

// describe returns what a package says of itself. Its files come later.
func (r *release) describe(t target, format string) *nfpm.Info {
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "switchyard", Arch: t.arch, Platform: t.os, Version: r.version, MTime: r.at,
		Section: "admin", Priority: "optional", License: "Apache-2.0",
		Maintainer: "The Switchyard authors <switchyard@users.noreply.github.com>",
		Vendor:     "Switchyard", Homepage: "https://github.com/switchyard-dl/switchyard",
		Description: "scheduler for deep-learning training on shared GPUs\nSwitchyard admits training jobs, learns how they behave, decides where and on how\nmany devices they run, moves them by checkpoint, and accounts for their energy.",
		Overridables: nfpm.Overridables{
			Depends: []string{map[string]string{"deb": "passwd", "rpm": "shadow-utils"}[format]}, Recommends: []string{"python3"},
			RPM: nfpm.RPM{BuildHost: "switchyard", Compression: "zstd", Summary: "Scheduler for deep-learning training on shared GPUs"},
			Deb: nfpm.Deb{Compression: "xz"},
		},
	})
	info.Prerelease = strings.ReplaceAll(info.Prerelease, "-", ".") // what follows a hyphen would be Debian's revision
	return info
}

func (r *release) packageName(t target, format string) string {
	packager, err := nfpm.Get(format)
	if err != nil {
		return "switchyard." + format
	}
	return packager.ConventionalFileName(r.describe(t, format))
}

// packaged writes a package.
func (r *release) packaged(t target, format string) func(context.Context, io.Writer) error {
	return func(ctx context.Context, w io.Writer) error {
		packager, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		info := r.describe(t, format)
		libc := ""
		for _, name := range installed() {
			path, err := r.program(ctx, t, name)
			if err != nil {
				return err
			}
			needs, err := libcOf(path)
			if err != nil {
				return err
			}
			libc = later(libc, needs)
			info.Contents = append(info.Contents, file(path, filepath.Join(units.Packaged().Programs, name), 0o755))
		}
		info.Depends = append(info.Depends, map[string]string{"deb": "libc6 (>= " + libc + ")", "rpm": "glibc >= " + libc}[format])
		if err := r.addTexts(ctx, info); err != nil {
			return err
		}
		return packager.Package(info, w)
	}
}

// addTexts adds units, configuration, Python packages, license and scripts.
func (r *release) addTexts(ctx context.Context, info *nfpm.Info) error {
	dir, err := os.MkdirTemp(r.stage, "package-")
	if err != nil {
		return fmt.Errorf("make a folder for the files of a package: %w", err)
	}
	stage := func(name, text string) string {
		path := filepath.Join(dir, filepath.Base(name))
		err = errors.Join(err, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	place := units.Packaged()
	info.Scripts = nfpm.Scripts{
		PostInstall: stage("postinst", place.Fill(postinst)), PreRemove: stage("prerm", place.Fill(prerm)), PostRemove: stage("postrm", place.Fill(postrm)),
	}
	for _, unit := range place.Services() {
		info.Contents = append(info.Contents, file(stage(unit.Path, unit.Text), unit.Path, 0o644))
	}
	config := file(stage(place.Config().Path, place.Config().Text), place.Config().Path, 0o644)
	config.Type = files.TypeConfigNoReplace
	info.Contents = append(info.Contents, config,
		file(filepath.Join(r.source, "LICENSE"), "/usr/share/doc/switchyard/copyright", 0o644),
		file(filepath.Join(r.source, "CHANGELOG.md"), "/usr/share/doc/switchyard/CHANGELOG.md", 0o644))
	if err != nil {
		return fmt.Errorf("write a file of the package: %w", err)
	}
	return r.addLibrary(ctx, info, place.Library)
}

// addLibrary adds the Python packages of jobs.
func (r *release) addLibrary(ctx context.Context, info *nfpm.Info, to string) error {
	const from = "libs/python"
	listed, err := output(ctx, filepath.Join(r.source, from), "git", "ls-files", "switchyard", "kubernetesdlprofile")
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(listed) {
		info.Contents = append(info.Contents, file(filepath.Join(r.source, from, name), filepath.Join(to, name), 0o644))
	}
	return nil
}

func file(source, destination string, mode os.FileMode) *files.Content {
	return &files.Content{Source: source, Destination: destination, FileInfo: &files.ContentFileInfo{Mode: mode}}
}

// libcOf returns the oldest version of the C library with which a program runs, or "" if it needs none.
func libcOf(path string) (newest string, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("read what a program links: %w", err)
	}
	defer func() { _ = f.Close() }()
	symbols, err := f.ImportedSymbols()
	if err != nil && len(symbols) == 0 {
		return "", nil // a static program has no table of them
	}
	for _, s := range symbols {
		if version, is := strings.CutPrefix(s.Version, "GLIBC_"); is {
			newest = later(newest, version)
		}
	}
	return newest, nil
}

// later returns the later of two versions such as 2.9 and 2.34.
func later(x, y string) string {
	numbers := func(v string) (n []int) {
		for part := range strings.SplitSeq(v, ".") {
			number, _ := strconv.Atoi(part)
			n = append(n, number)
		}
		return n
	}
	if slices.Compare(numbers(x), numbers(y)) < 0 {
		return y
	}
	return x
}
