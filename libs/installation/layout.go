package installation

import (
	"path/filepath"
	"strconv"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// AttemptsName is the folder in a job's folder that holds the folders of its attempts.
const AttemptsName = "attempts"

// Layout maps jobs and attempts to files below the data folder.
type Layout struct{ DataDir string }

// Job returns the private folder of a job.
func (l Layout) Job(job train.JobID) string { return filepath.Join(l.DataDir, "jobs", string(job)) }

// Attempt returns the private folder of an attempt.
func (l Layout) Attempt(job train.JobID, number int) string {
	return filepath.Join(l.Job(job), AttemptsName, strconv.Itoa(number))
}

// Output returns the log file of a job.
func (l Layout) Output(job train.JobID) string { return filepath.Join(l.Job(job), "output.log") }

// Snapshots returns the folder where a job saves its state by default.
func (l Layout) Snapshots(job train.JobID) string { return filepath.Join(l.Job(job), "snapshots") }

// Upload returns the folder of a job that holds its copy of the uploaded folder.
func (l Layout) Upload(job train.JobID) string { return filepath.Join(l.Job(job), "upload") }

// Work returns the folder where a job starts by default.
func (l Layout) Work(job train.JobID) string { return filepath.Join(l.Job(job), "work") }
