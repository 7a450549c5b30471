package jobapi

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// notes are the reports that have not arrived, a file each. After the end of the process the scheduler takes them from
// there, in the order of their names.
type notes struct {
	dir, prefix string
	made        int
}

// take makes a fact, and writes it down. Without a folder, or without room in it, the fact is only in memory.
func (n *notes) take(kind string, body any) fact {
	f := fact{kind: kind, body: body}
	if n.dir == "" {
		return f
	}
	data, err := json.Marshal(map[string]any{"path": n.prefix + kind, "body": body})
	if err != nil {
		return f
	}
	n.made++
	name := fmt.Sprintf("%020d-%d-%d.json", time.Now().UnixNano(), os.Getpid(), n.made)
	whole, part := filepath.Join(n.dir, name), filepath.Join(n.dir, "."+name)
	if os.WriteFile(part, data, 0o600) == nil && os.Rename(part, whole) == nil {
		f.file = whole
	}
	return f
}

// drop removes the file of a fact that has arrived.
func (n *notes) drop(f fact) {
	if f.file != "" {
		_ = os.Remove(f.file)
	}
}
