package train

import (
	"path"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// FileRequest asks the executor of a node for a job's files, on the subject `switchyard.executor.<node>.files`: for a
// list, or for a piece of one file.
type FileRequest struct {
	Job JobID `json:"job"`
	// Path is that of a file in a list; empty asks for the list.
	Path   string `json:"path,omitempty"`
	Offset int64  `json:"offset,omitempty"`
}

// FileAnswer is a list of files, or a piece of a file.
type FileAnswer struct {
	Folders Folders `json:"folders"`
	// Files are the newest files, the newest first; More says that there are others.
	Files []File `json:"files,omitempty"`
	More  bool   `json:"more,omitempty"`
	// Data is a piece of the file, Size the length of the whole file.
	Data []byte `json:"data,omitempty"`
	Size int64  `json:"size,omitempty"`
}

// Folders are a job's folders, as paths of its machine. Checkpoints is the one that the job sees as
// /snapshots/JOB_UUID, Work the one that it was started in. A folder that does not exist is empty.
type Folders struct {
	Machine     NodeID `json:"machine,omitempty"`
	Job         string `json:"job,omitempty"`
	Output      string `json:"output,omitempty"`
	Checkpoints string `json:"checkpoints,omitempty"`
	Work        string `json:"work,omitempty"`
}

// OnHost returns the machine's path of a file that the job calls /snapshots/JOB_UUID/.., and other paths as they are.
func (f Folders) OnHost(seen string) string {
	within, mounted := strings.CutPrefix(seen, "/snapshots/")
	if _, rest, inside := strings.Cut(within, "/"); mounted && inside && f.Checkpoints != "" {
		return path.Join(f.Checkpoints, rest)
	}
	return seen
}

// File is one file of a job. Its path begins with checkpoints/ or work/.
type File struct {
	Path      string     `json:"path"`
	Size      unit.Bytes `json:"size_bytes"`
	ChangedAt time.Time  `json:"changed_at"`
}

// FileSubject is the subject on which the executor of a node answers a FileRequest.
func FileSubject(node NodeID) string { return "switchyard.executor." + string(node) + ".files" }
