package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/lab/traces"
)

// loadApplications reads a folder of traces, or its "traces" folder. The precomputed interpolations lie beside it.
func loadApplications(dir string) (map[string]*traces.Application, error) {
	if info, err := os.Stat(filepath.Join(dir, "traces")); err == nil && info.IsDir() {
		dir = filepath.Join(dir, "traces")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("open traces: %w", err)
	}
	return traces.Load(os.DirFS(filepath.Dir(dir)), filepath.Base(dir), "derived")
}

// loadWorkloads reads files and unions of files. Their names are those of the files, with the folder where two would
// be the same.
func loadWorkloads(specs []string) ([]traces.Workload, error) {
	count := map[string]int{}
	for _, spec := range specs {
		count[workloadName(spec, false)]++
	}
	var all []traces.Workload
	for _, spec := range specs {
		name := workloadName(spec, count[workloadName(spec, false)] > 1)
		var parts []traces.Workload
		for path := range strings.SplitSeq(spec, "+") {
			if path == "" {
				return nil, exit.Errorf(exit.Usage, "files are joined by commas, or by + to run both at once", "--workload %q: a name of a file is empty", spec)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return nil, exit.Usagef("--workload: %v", err)
			}
			w, err := traces.ParseWorkload(name, data)
			if err != nil {
				return nil, exit.Errorf(exit.Usage, "columns are name,time,application,num_replicas,batch_size", "--workload %s: %v", path, err)
			}
			parts = append(parts, w)
		}
		all = append(all, traces.Union(name, parts...))
	}
	return all, nil
}

// workloadName is what a file, or a union of files, is called in results.
func workloadName(spec string, withFolder bool) string {
	var parts []string
	for path := range strings.SplitSeq(spec, "+") {
		name := strings.TrimSuffix(filepath.Base(path), ".csv")
		if withFolder {
			name = filepath.Base(filepath.Dir(path)) + "/" + name
		}
		parts = append(parts, name)
	}
	return strings.Join(parts, "+")
}
