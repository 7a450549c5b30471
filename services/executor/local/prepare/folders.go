package prepare

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/jobfiles"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// resolveFolders resolves the folders of a job and makes those that the scheduler has to make.
func (p *Preparer) resolveFolders(s *launch.Setting) error {
	s.Custom, s.Snapshots, s.Datasets, s.Work = s.Spec.CustomDir, s.Spec.SnapshotsDir, s.Spec.DatasetsDir, p.Work(s.Job)
	if p.People {
		if err := followLinks(&s.Custom, &s.Snapshots, &s.Datasets); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(s.Work, 0o700); err != nil {
		return fmt.Errorf("make the working folder: %w", err)
	}
	// Symbolic links on the way to the data folder are the operator's choice. The folder itself must not be a link, as
	// with folders that users name.
	own, err := filepath.EvalSymlinks(p.Own(s.Job))
	if err != nil {
		return fmt.Errorf("find the job's folder: %w", err)
	}
	if s.Spec.Upload != "" {
		s.Custom = filepath.Join(own, filepath.Base(p.Upload(s.Job)))
	}
	if s.Snapshots == "" {
		s.Snapshots = filepath.Join(own, filepath.Base(p.Snapshots(s.Job)))
		if err := os.MkdirAll(s.Snapshots, 0o700); err != nil {
			return fmt.Errorf("make the snapshots folder: %w", err)
		}
	}
	if s.Datasets == "" {
		if s.Datasets, err = p.userDatasets(*s); err != nil {
			return err
		}
	}
	if err := p.checkFolders(*s); err != nil {
		return err
	}
	if s.Staged != "" {
		s.Datasets = s.Staged
	}
	// Scripts save below /snapshots/JOB_UUID without making it.
	if err := os.MkdirAll(filepath.Join(s.Snapshots, s.Capability), 0o700); err != nil {
		return fmt.Errorf("make the job's folder in the snapshots folder: %w", err)
	}
	return nil
}

// link makes the links that lead from the job's folder to what the job writes.
func (p *Preparer) link(s launch.Setting) error {
	work := workDirHere(s.Spec)
	if s.Spec.Upload != "" && work == "" {
		work = s.Custom // it starts in its copy, and writes there
	}
	return jobfiles.Link(p.Layout, s.Job, filepath.Join(s.Snapshots, s.Capability), work)
}

// checkFolders checks the folders of a job once more: its record may never have passed admission.
func (p *Preparer) checkFolders(s launch.Setting) error {
	if p.People { // the kernel checks them, with the rights of the user
		return nil
	}
	for name, folder := range map[string]string{
		"custom_dir": s.Custom, "snapshots_dir": s.Snapshots, "datasets_dir": s.Datasets, "work_dir": workDirHere(s.Spec),
	} {
		if folder == "" {
			continue
		}
		found, err := p.folders.At(folder)
		if err != nil {
			return fmt.Errorf("%s %s %w", name, folder, err)
		}
		if found != nil {
			return fmt.Errorf("%s %w", name, found)
		}
		around := name == "work_dir" && !p.Holds(folder) // nothing is mounted there
		if !around && p.Exposed(folder, s.Job) {
			return fmt.Errorf("%s %s %w", name, folder, errExposed)
		}
	}
	return nil
}

// visible returns the data folder and what a job sees of it: its own folders and files, and those that all jobs use. A
// folder that its user named may have become a link into the data folder since it was checked.
func (p *Preparer) visible(s launch.Setting) (hidden string, kept []string) {
	real, err := filepath.EvalSymlinks(p.DataDir)
	if err != nil || p.People { // where the users' rights keep them apart
		return "", nil
	}
	named := []string{s.Snapshots, s.Custom}
	for _, path := range append(named, s.Work, s.Staged, s.Unreported, s.TokenFile, s.HostFile, s.PythonPath, socketFolder(s.Home().JobAPISocket)) {
		at, err := filepath.EvalSymlinks(path)
		if err != nil || at == "" || !installation.Below(at, real) || slices.Contains(named, path) && p.Exposed(at, s.Job) {
			continue
		}
		kept = append(kept, at)
	}
	return real, kept
}

// workDirHere returns the working folder that a job asks for if it is a folder of this machine, and not in an image
// or in a mounted folder.
func workDirHere(spec train.Spec) string {
	if spec.Image != "" || !filepath.IsAbs(spec.WorkDir) {
		return ""
	}
	for target, given := range map[string]string{
		launch.CustomTarget: spec.CustomDir + spec.Upload, launch.SnapshotsTarget: spec.SnapshotsDir, launch.DataTarget: spec.DatasetsDir,
	} {
		if given != "" && (spec.WorkDir == target || strings.HasPrefix(spec.WorkDir, target+"/")) {
			return ""
		}
	}
	return spec.WorkDir
}

// checkFolder checks that a path is a folder and leads where it says. A job was admitted with its folders resolved: a
// symbolic link in one of them was put there since, and may lead out of the folders that jobs may use.
func checkFolder(folder string) error {
	info, err := os.Stat(folder)
	if attempt.Passes(err) {
		return err
	}
	if err != nil || !info.IsDir() {
		return fmt.Errorf("%s %w", folder, errNoFolder)
	}
	resolved, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return fmt.Errorf("%s %w", folder, errNoFolder)
	}
	if resolved != filepath.Clean(folder) {
		return fmt.Errorf("%s %w: it leads to %s now", folder, errMoved, resolved)
	}
	return nil
}

var (
	errExposed  = errors.New("contains or lies in the data folder of Switchyard, with the secrets of other jobs: name another folder")
	errNoFolder = errors.New("is not a folder that can be read here")
	errMoved    = errors.New("was replaced by a symbolic link after the job was admitted")
)

// followLinks resolves folders that a user names, with his own rights: then it does not matter who made the links.
func followLinks(folders ...*string) error {
	for _, folder := range folders {
		if *folder == "" {
			continue
		}
		resolved, err := filepath.EvalSymlinks(*folder)
		if err == nil {
			err = checkFolder(resolved)
		}
		if err != nil {
			return attempt.Plain(err)
		}
		*folder = resolved
	}
	return nil
}

// userDatasets returns the folder of datasets in the home of a job's user, if there is one.
func (p *Preparer) userDatasets(s launch.Setting) (string, error) {
	name := s.Spec.User
	if name == "" {
		return "", nil
	}
	home := filepath.Join("/home", name)
	if p.People {
		home = attempt.Variable(s.Base, "HOME")
	} else if u, err := user.Lookup(name); err == nil {
		home = u.HomeDir
	}
	folder, err := p.datasets.At(home)
	if err != nil {
		return "", fmt.Errorf("the home folder %s %w", home, err)
	}
	return folder, nil
}

// datasetsIn returns the folder of datasets in a home. It resolves a link, because the job does not choose this folder.
func datasetsIn(home string) string {
	folder, err := filepath.EvalSymlinks(filepath.Join(home, "datasets"))
	if err != nil {
		return ""
	}
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return ""
	}
	return folder
}
