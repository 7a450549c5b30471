package prepare

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// cpus returns the processors that a process may use: those of its slots. GPUs come with no processors, so their
// processes may use all of the machine's. The list starts at another processor for each GPU, so that processes
// limited to a few do not share them. A process that serves the workers may use the processors that they leave.
func cpus(s launch.Setting, rank int, processors []int) []int {
	is := s.Processes()[rank]
	devices := is.Devices
	if is.Serves() {
		ofWorker := func(cpu int) bool {
			return slices.ContainsFunc(s.Devices(), func(d train.Device) bool { return d.Kind == train.KindCPU && d.Core == cpu })
		}
		if left := slices.DeleteFunc(slices.Clone(processors), ofWorker); len(left) > 0 {
			return left
		}
		return processors
	}
	if s.OnGPUs() {
		all := s.Home().Devices
		first := max(slices.IndexFunc(all, func(d train.Device) bool { return len(devices) > 0 && d.ID == devices[0].ID }), 0)
		from := first * len(processors) / max(len(all), 1)
		return slices.Concat(processors[from:], processors[:from])
	}
	var cores []int
	for _, d := range devices {
		cores = append(cores, d.Core)
	}
	slices.Sort(cores)
	return slices.Compact(cores)
}

// inherited are the variables that describe the machine and its user. The others belong to the shell or the service
// manager that started the executor, tokens among them.
func inherited() []string {
	return []string{"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LC_*", "TZ", "TMPDIR"}
}

// defaultPath is where programs are found if nobody names a PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment returns the whole environment of a process on the machine itself: the inherited variables, then the
// user's, then the scheduler's.
func environment(s launch.Setting, rank int) []string {
	env := map[string]string{"PYTHONUNBUFFERED": "1", "PATH": defaultPath}
	maps.Copy(env, chosen(s.Base, slices.Concat(inherited(), s.Passed)))
	maps.Copy(env, s.Spec.Env)
	maps.Copy(env, s.Secrets)
	if s.PythonPath != "" {
		env["PYTHONPATH"] = strings.TrimPrefix(env["PYTHONPATH"]+":"+s.PythonPath, ":")
	}
	maps.Copy(env, s.Scheduler(rank))
	if s.TokenFile != "" {
		env["KUBEFLOW_TRAINER_SERVER_URL"] = fmt.Sprintf("http://%s/v1/jobs/%s/trainer-status", s.Home().JobAPI, s.Capability)
		env["KUBEFLOW_TRAINER_SERVER_TOKEN"] = s.TokenFile
	}
	return pairs(env)
}

func pairs(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}
