package podlog

import (
	"io/fs"
	"os"
	"path/filepath"
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

// slugs indexes attempts by slug.
func slugs(attempts []train.Attempt) map[string]train.Attempt {
	found := map[string]train.Attempt{}
	for _, a := range attempts {
		found[train.PodSlug(a.Job)] = a
	}
	return found
}

// parseFolder parses "<namespace>_<pod>_<uid>"; ok is false if that is no pod of a known job.
func parseFolder(folder string, known map[string]train.Attempt) (p pod, ok bool) {
	parts := strings.Split(folder, "_")
	if len(parts) != 3 {
		return pod{}, false
	}
	slug, attempt, rank, found := train.CutPodName(parts[1])
	a, is := known[slug]
	if !found || !is || attempt > a.Number || attempt == a.Number && rank >= a.MostRanks() || parts[0] != a.Namespace {
		return pod{}, false
	}
	return pod{folder: folder, uid: parts[2], job: a.Job, attempt: attempt, rank: rank}, true
}

// logFiles lists the logs of a pod's containers, below its folder: "<container>/<start>.log".
func logFiles(folder string) []string {
	names, _ := fs.Glob(os.DirFS(folder), "*/*.log") // the pattern is well-formed
	for i, name := range names {
		names[i] = filepath.Join(folder, name)
	}
	return names
}
