package installation

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// AttemptsName is the folder in a job's folder that holds the folders of its attempts.
const AttemptsName = "attempts"

// Layout maps jobs and attempts to files below the data folder. If jobs run as the users who submitted them (People),
// DataDir is the folder of the launcher: root owns it, the folder of a job and that of its attempts, and the user what
// lies in Own and in the folder of an attempt.
type Layout struct {
	DataDir string
	People  bool
}

// Job returns the private folder of a job.
func (l Layout) Job(job train.JobID) string { return filepath.Join(l.DataDir, "jobs", string(job)) }

// Own returns the folder in which a job has its output and its files.
func (l Layout) Own(job train.JobID) string {
	if l.People {
		return filepath.Join(l.Job(job), "own")
	}
	return l.Job(job)
}

// Attempt returns the private folder of an attempt.
func (l Layout) Attempt(job train.JobID, number int) string {
	return filepath.Join(l.Job(job), AttemptsName, strconv.Itoa(number))
}

// PersonsData returns the folder with a person's copies of data at addresses, if jobs run as who submitted them.
func (l Layout) PersonsData(uid int) string {
	return filepath.Join(l.DataDir, "data", strconv.Itoa(uid))
}

// Output returns the log file of a job.
func (l Layout) Output(job train.JobID) string { return filepath.Join(l.Own(job), "output.log") }

// Snapshots returns the folder where a job saves its state by default.
func (l Layout) Snapshots(job train.JobID) string { return filepath.Join(l.Own(job), "snapshots") }

// Upload returns the folder of a job that holds its copy of the uploaded folder.
func (l Layout) Upload(job train.JobID) string { return filepath.Join(l.Own(job), "upload") }

// Work returns the folder where a job starts by default.
func (l Layout) Work(job train.JobID) string { return filepath.Join(l.Own(job), "work") }

// SocketFolder is the name of the folder that holds only the socket of the job API, since jobs see the whole folder.
const SocketFolder = "job-api"

// Exposed reports whether a job that uses a folder, named by its real path, would reach files of the data folder that
// are not its own: the folder contains the data folder, or lies in it and is none of the job's own folders.
func (l Layout) Exposed(folder string, job train.JobID) bool {
	real, err := filepath.EvalSymlinks(l.DataDir)
	if err != nil {
		return false // there is no data folder
	}
	if !Below(folder, real) {
		return Below(real, folder)
	}
	own := l.Real()
	return !slices.ContainsFunc([]string{own.Work(job), own.Snapshots(job), own.Upload(job)}, func(dir string) bool { return Below(folder, dir) })
}

// Holds reports whether a folder, named by its real path, is the data folder or lies in it.
func (l Layout) Holds(folder string) bool {
	real, err := filepath.EvalSymlinks(l.DataDir)
	return err == nil && Below(folder, real)
}

// Real returns the layout with the real path of the data folder: links on the way to it are the operator's choice.
func (l Layout) Real() Layout {
	if real, err := filepath.EvalSymlinks(l.DataDir); err == nil {
		l.DataDir = real
	}
	return l
}

// Below reports whether a clean absolute path lies in a folder, or is the folder.
func Below(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}
