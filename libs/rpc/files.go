package rpc

import (
	"path"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// FileRequest asks the executor of a node for a job's files, on the subject `switchyard.executor.<node>.files`: for a
// list, or for a piece of one file.
type FileRequest struct {
	Job train.JobID `json:"job"`
	// Path is that of a file in a list; empty asks for the list.
	Path   string `json:"path,omitempty"`
	Offset int64  `json:"offset,omitempty"`
}

// FileAnswer is a list of files, or a piece of a file.
type FileAnswer struct {
	// Folders are where the files are.
	Folders Folders `json:"folders"`
	// Files are the newest files, the newest first; More says that there are others.
	Files []File `json:"files,omitempty"`
	More  bool   `json:"more,omitempty"`
	// Data is a piece of the file, Size the length of the whole file.
	Data []byte `json:"data,omitempty"`
	Size int64  `json:"size,omitempty"`
}

// Folders are a job's folders, as paths of its machine. A folder that does not exist is empty.
type Folders struct {
	// Machine is the node that has them.
	Machine train.NodeID `json:"machine,omitempty"`
	// Job is the folder of the job.
	Job string `json:"job,omitempty"`
	// Output is the file of its output.
	Output string `json:"output,omitempty"`
	// Checkpoints is the folder that the job sees as /snapshots/JOB_UUID.
	Checkpoints string `json:"checkpoints,omitempty"`
	// Work is the folder in which it was started.
	Work string `json:"work,omitempty"`
}

// OnHost returns the machine's path of a file that the job calls /snapshots/JOB_UUID/.., and other paths as they are.
func (f Folders) OnHost(seen string) string {
	within, mounted := strings.CutPrefix(seen, "/snapshots/")
	if _, rest, inside := strings.Cut(within, "/"); mounted && inside && f.Checkpoints != "" {
		return path.Join(f.Checkpoints, rest)
	}
	return seen
}

// File is one file of a job.
type File struct {
	// Path begins with checkpoints/ or work/.
	Path string `json:"path"`
	// Size is its length.
	Size unit.Bytes `json:"size_bytes"`
	// ChangedAt is when it was written last.
	ChangedAt time.Time `json:"changed_at"`
}

// FileSubject is the subject on which the executor of a node answers a FileRequest.
func FileSubject(node train.NodeID) string { return "switchyard.executor." + string(node) + ".files" }
