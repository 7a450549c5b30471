package local

import (
	"maps"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// cpus are the processors of a process: the slots that it may use. A job on GPUs shares all of them.
func cpus(s launch.Setting, rank int) []int {
	if s.OnGPUs() {
		return nil
	}
	var cores []int
	for _, d := range s.Processes()[rank].Devices {
		cores = append(cores, d.Core)
	}
	slices.Sort(cores)
	return slices.Compact(cores)
}

// environment is the whole environment of a process on the machine itself: what is inherited, then the user's, then the scheduler's.
func environment(s launch.Setting, rank int) []string {
	env := map[string]string{"PYTHONUNBUFFERED": "1"}
	for _, pair := range s.Base {
		name, value, found := strings.Cut(pair, "=")
		if found && name != "" && !strings.HasPrefix(name, "SWITCHYARD_") {
			env[name] = value
		}
	}
	maps.Copy(env, s.Spec.Env)
	if s.PythonPath != "" {
		env["PYTHONPATH"] = strings.TrimPrefix(env["PYTHONPATH"]+":"+s.PythonPath, ":")
	}
	maps.Copy(env, s.Scheduler(rank))
	return pairs(env)
}

func pairs(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}
