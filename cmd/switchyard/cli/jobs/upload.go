package jobs

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/libs/upload"
)

// travel uploads the folder of a job, if the flags ask for it or the job will run on another machine, which then has
// other programs too.
func (f *submitFlags) travel(ctx context.Context, a *console.Console, y console.Yard, fs *pflag.FlagSet, spec *train.Spec) error {
	if fs.Changed("upload") && !f.upload || spec.Upload != "" {
		return nil
	}
	nodes, err := y.Nodes(ctx)
	if err != nil {
		return err
	}
	boot, _ := proc.Root("/proc").BootID()
	away := elsewhere(nodes, boot)
	if away {
		leavePrograms(spec)
	}
	dir, rest := folderOf(*spec)
	info, err := os.Stat(dir)
	here := err == nil && info.IsDir()
	switch {
	case f.upload && !here:
		return exit.Usagef("--upload: %q is no folder here: name the job's folder with --custom-dir or --work-dir", dir)
	case !f.upload && (!away || !here):
		return nil
	}
	if spec.Upload, err = uploadFolder(ctx, a, y, dir); err != nil {
		return err
	}
	if away && !f.upload {
		fmt.Fprintln(a.Stderr, "  no node is this machine; --upload=false if they have this folder too")
	}
	spec.CustomDir, spec.WorkDir = "", rest
	return nil
}

// elsewhere reports whether no node is the machine of this process.
func elsewhere(nodes []*train.Node, boot string) bool {
	machines := slices.DeleteFunc(slices.Clone(nodes), func(n *train.Node) bool { return n.Backend != train.BackendLocal })
	return len(machines) > 0 && !slices.ContainsFunc(machines, func(n *train.Node) bool { return n.BootID == boot })
}

// folderOf returns the folder that a job brings along, and where in its copy the job starts.
func folderOf(spec train.Spec) (dir, workDir string) {
	if spec.CustomDir == "" {
		return spec.WorkDir, ""
	}
	if rest, err := filepath.Rel(spec.CustomDir, spec.WorkDir); err == nil && filepath.IsLocal(rest) {
		return spec.CustomDir, path.Join("/custom", filepath.ToSlash(rest))
	}
	return spec.CustomDir, spec.WorkDir
}

// leavePrograms removes the variables of the caller that say where programs are on this machine.
func leavePrograms(spec *train.Spec) {
	for name, value := range spec.Env {
		if ofShell(name) && name != "LANG" && !strings.HasPrefix(name, "LC_") && value == os.Getenv(name) {
			delete(spec.Env, name)
		}
	}
}

// uploadFolder uploads a folder, unless the same one was uploaded before, and returns its hash.
func uploadFolder(ctx context.Context, a *console.Console, y console.Yard, dir string) (hash string, err error) {
	archive, err := os.CreateTemp("", "switchyard-upload-*")
	if err != nil {
		return "", fmt.Errorf("pack %s: %w", dir, err)
	}
	defer func() { _, _ = archive.Close(), os.Remove(archive.Name()) }()
	if hash, err = upload.Pack(dir, upload.Standard(), archive); err != nil {
		return "", exit.Errorf(exit.Usage, "", "%v", err)
	}
	size, err := archive.Seek(0, io.SeekCurrent)
	if err != nil {
		return "", fmt.Errorf("pack %s: %w", dir, err)
	}
	repeat, err := y.Upload(ctx, hash, archive)
	if err != nil {
		return "", err
	}
	verb := "uploaded"
	if repeat {
		verb = "uploaded before:"
	}
	fmt.Fprintf(a.Stderr, "%s %s (%s); the job has a copy\n", verb, dir, unit.Bytes(size))
	return hash, nil
}
