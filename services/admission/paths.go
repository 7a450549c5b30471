package admission

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/fit"
)

// folders are what jobs may use on this machine: what lies below the roots and not in the data folder.
type folders struct {
	roots []string
	data  installation.Layout
	// asSubmitters says that jobs run as the users who submitted them. Then the kernel decides which folders they may use,
	// and admission, which may see fewer, looks at none.
	asSubmitters bool
}

// resolve resolves the folders and the script of a job on this machine.
func (f folders) resolve(id train.JobID, spec train.Spec) fit.Paths {
	if f.asSubmitters {
		return unseen(spec)
	}
	paths := fit.Paths{
		CustomDir: inspect(spec.CustomDir), SnapshotsDir: inspect(spec.SnapshotsDir), DatasetsDir: inspect(spec.DatasetsDir), WorkDir: inspect(spec.WorkDir),
	}
	paths.Data = addressOf(spec.DataURL)
	if paths.Data.Scheme == fileScheme {
		paths.Data.File = inspect(paths.Data.Path)
		if paths.Data.File.Resolved != "" {
			paths.Data.Resolved = (&url.URL{Scheme: fileScheme, Path: paths.Data.File.Resolved}).String()
		}
	}
	for _, p := range []*fit.Path{&paths.CustomDir, &paths.SnapshotsDir, &paths.DatasetsDir} {
		p.Exposes = p.IsFolder && f.data.Exposed(p.Resolved, id)
	}
	// A job that starts in a folder around the data folder gets nothing mounted, and does not see it.
	paths.WorkDir.Exposes = paths.WorkDir.IsFolder && f.data.Holds(paths.WorkDir.Resolved) && f.data.Exposed(paths.WorkDir.Resolved, id)
	if script := onHost(spec, paths); script != "" {
		paths.Script = inspect(script)
	}
	seen := map[string]bool{}
	for _, root := range f.roots {
		// A root that does not exist allows nothing.
		if found := inspect(root); found.IsFolder && !seen[found.Resolved] {
			seen[found.Resolved] = true
			paths.Roots = append(paths.Roots, found.Resolved)
		}
	}
	return paths
}

const fileScheme = "file"

// addressOf takes an address apart.
func addressOf(text string) fit.Address {
	u, err := url.Parse(text)
	if err != nil || text == "" {
		return fit.Address{}
	}
	return fit.Address{Scheme: u.Scheme, Host: u.Host, Path: u.Path, Named: u.User != nil}
}

// unseen returns the folders of a job as it names them.
func unseen(spec train.Spec) fit.Paths {
	named := func(name string) fit.Path {
		if !path.IsAbs(name) {
			return fit.Path{}
		}
		return fit.Path{Resolved: path.Clean(name), IsFolder: true}
	}
	data := addressOf(spec.DataURL)
	if data.Scheme == fileScheme {
		data.File = named(data.Path)
	}
	return fit.Paths{
		Roots: []string{"/"}, Data: data, CustomDir: named(spec.CustomDir), SnapshotsDir: named(spec.SnapshotsDir), DatasetsDir: named(spec.DatasetsDir), WorkDir: named(spec.WorkDir),
	}
}

// onHost returns the file on this machine that script_path names, or "" if it lies in an image or in a folder that the
// spec does not give.
func onHost(spec train.Spec, paths fit.Paths) string {
	script := path.Clean(spec.ScriptPath)
	for _, mount := range []struct {
		inside string
		host   fit.Path
	}{{"/custom", paths.CustomDir}, {"/snapshots", paths.SnapshotsDir}, {"/data", paths.DatasetsDir}} {
		if rest, below := strings.CutPrefix(script, mount.inside+"/"); below && mount.host.IsFolder {
			return path.Join(mount.host.Resolved, rest)
		}
	}
	if spec.Image != "" || !path.IsAbs(script) || strings.HasPrefix(script, "/custom/") {
		return ""
	}
	return script
}

// inspect follows symbolic links. It ignores paths that are not absolute.
func inspect(name string) fit.Path {
	if !filepath.IsAbs(name) {
		return fit.Path{}
	}
	resolved, err := filepath.EvalSymlinks(name)
	if err != nil {
		return missing(name, err)
	}
	info, err := os.Stat(resolved)
	if err != nil {
		return missing(resolved, err)
	}
	return fit.Path{Resolved: resolved, IsFolder: info.IsDir()}
}

// missing returns a path that could not be followed, as far as it could: a link in an allowed folder must not tell what
// exists elsewhere.
func missing(name string, err error) fit.Path {
	if at, ok := errors.AsType[*fs.PathError](err); ok && filepath.IsAbs(at.Path) {
		name = at.Path
	}
	return fit.Path{Resolved: filepath.Clean(name), Fault: fault(err)}
}

// fault describes an error without the path, which the reader knows.
func fault(err error) string {
	var at *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "does not exist on this machine"
	case errors.Is(err, fs.ErrPermission):
		return "the scheduler may not read it"
	case errors.As(err, &at):
		return at.Err.Error()
	}
	return err.Error()
}
