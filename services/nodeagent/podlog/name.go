package podlog

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// pod is a pod of a job, according to the name of its folder.
type pod struct {
	// folder is below the root of logs, uid is Kubernetes' id of this very pod.
	folder, uid string
	job         train.JobID
	attempt     int
	rank        int
}

// slug is the beginning of the names of a job's pods.
func slug(job train.JobID) string { return strings.TrimSuffix(train.PodName(job, 0, 0), "-0-0") }

// slugs indexes attempts by slug.
func slugs(attempts []train.Attempt) map[string]train.Attempt {
	found := map[string]train.Attempt{}
	for _, a := range attempts {
		found[slug(a.Job)] = a
	}
	return found
}

// parseFolder parses "<namespace>_<pod>_<uid>"; ok is false if that is no pod of a known job.
func parseFolder(folder string, known map[string]train.Attempt) (p pod, ok bool) {
	parts := strings.Split(folder, "_")
	if len(parts) != 3 {
		return pod{}, false
	}
	rest, rank, found := cutNumber(parts[1])
	name, attempt, more := cutNumber(rest)
	a, is := known[name]
	if !found || !more || !is || attempt > a.Number || parts[0] != a.Namespace {
		return pod{}, false
	}
	return pod{folder: folder, uid: parts[2], job: a.Job, attempt: attempt, rank: rank}, true
}

// cutNumber cuts "-7" off the end of a name.
func cutNumber(name string) (rest string, number int, ok bool) {
	at := strings.LastIndexByte(name, '-')
	if at < 0 {
		return name, 0, false
	}
	number, err := strconv.Atoi(name[at+1:])
	return name[:at], number, err == nil && number >= 0
}

// logFiles lists the logs of a pod's containers, below its folder: "<container>/<start>.log".
func logFiles(folder string) []string {
	names, _ := fs.Glob(os.DirFS(folder), "*/*.log") // the pattern is well-formed
	for i, name := range names {
		names[i] = filepath.Join(folder, name)
	}
	return names
}
