package prepare

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/engine"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// ofClient are the variables of the executor that the client of a container runtime gets: where its engine is, and how
// images are fetched. What a user sets never gets there: LD_PRELOAD or DOCKER_HOST would act on the machine itself.
func ofClient() []string {
	return []string{
		"HOME", "USER", "LOGNAME", "PATH", "LANG", "LC_*", "TMPDIR", "XDG_*", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK",
		"DOCKER_*", "CONTAINER_*", "CONTAINERS_*", "_CONTAINERS_*", "REGISTRY_AUTH_FILE", "SSL_CERT_*", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
	}
}

// chosen returns those of some NAME=value pairs whose names match a pattern.
func chosen(base, patterns []string) map[string]string {
	env := map[string]string{}
	for _, pair := range base {
		name, value, found := strings.Cut(pair, "=")
		matches := func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok }
		if found && slices.ContainsFunc(patterns, matches) {
			env[name] = value
		}
	}
	return env
}

// inContainer returns the environment of a rank in an image.
func (b Bounds) inContainer(s launch.Setting, rank int) map[string]string {
	env := map[string]string{"PYTHONUNBUFFERED": "1"}
	// The image's list of users has no entry for another user than its own.
	if len(b.userOf(engine.Named(s.Home().ContainerRuntime), s.Base)) > 0 {
		env["HOME"], env["USER"] = "/tmp", cmp.Or(s.Spec.User, "job")
	}
	maps.Copy(env, s.Spec.Env)
	maps.Copy(env, s.Secrets)
	maps.Copy(env, s.Scheduler(rank))
	if !s.Processes()[rank].Serves() {
		env["CUDA_VISIBLE_DEVICES"] = launch.Inside(s.Places[0].GPUs())
	}
	return env
}

// environmentFile is where the client of a container runtime reads the environment of a rank. Every user of the machine
// can read the arguments of a command, and secrets are in the environment.
func environmentFile(l installation.Layout, s launch.Setting, rank int) string {
	return filepath.Join(l.Attempt(s.Job, s.Attempt.Number), fmt.Sprintf("environment-%d", rank))
}

// writeEnvironments writes the environment of each rank for the client of the container runtime, which takes each line
// for a variable.
func (b Bounds) writeEnvironments(l installation.Layout, s launch.Setting) error {
	for rank := range s.Processes() {
		var text strings.Builder
		for _, pair := range pairs(b.inContainer(s, rank)) {
			if strings.ContainsAny(pair, "\n\r") {
				name, _, _ := strings.Cut(pair, "=")
				return fmt.Errorf("env.%s %w", name, errLines)
			}
			text.WriteString(pair + "\n")
		}
		if err := installation.ReplaceFile(environmentFile(l, s, rank), []byte(text.String())); err != nil {
			return err
		}
	}
	return nil
}

var errLines = errors.New("has several lines, which the environment of a container cannot hold: put the text into a file of the job's folders")

// mostTasks bounds the processes and threads of a container: enough for the loaders of many GPUs, too few to fill the
// process table of the machine.
const mostTasks = "32768"

// container returns the command that runs a rank in an image.
func (b Bounds) container(s launch.Setting, l installation.Layout, rank int) attempt.Process {
	is := s.Processes()[rank]
	runtime := engine.Named(s.Home().ContainerRuntime)
	args := append([]string{string(runtime)}, clientFlags(l, s)...)
	args = append(args, "run", "--rm", "--name", attempt.ContainerName(s.Job, s.Attempt.Number, len(s.Processes()), rank))
	if l.People {
		args = append(args, rootlessFlags(s, l, rank)...)
	} else { // the network is the machine's: the ranks of a job meet at 127.0.0.1, and so does code with the job API
		args = append(args, "--network", "host", "--init")
	}
	args = append(args, "--cap-drop=ALL", "--security-opt", "no-new-privileges")
	if !l.People { // whose control groups bound tasks, memory and processors
		args = append(args, "--pids-limit", mostTasks)
	}
	args = append(args, "--env-file", environmentFile(l, s, rank))
	args = append(args, b.userOf(runtime, s.Base)...)
	if s.Spec.Shell != nil && rank == 0 {
		args = append(args, "--interactive", "--tty")
	}
	for _, m := range mounts(s) {
		args = append(args, "--volume", m.Source+":"+m.Target)
	}
	if dir := socketFolder(s.Home().JobAPISocket); dir != "" {
		args = append(args, "--volume", dir+":"+dir)
	}
	if s.Unreported != "" {
		args = append(args, "--volume", s.Unreported+":"+s.Unreported)
	}
	args = append(args, containerDevices(s, rank, l.People)...)
	if !l.People {
		args = append(args, containerLimits(s, is)...)
	}
	if s.Spec.WorkDir != "" {
		args = append(args, "--workdir", s.Spec.WorkDir)
	}
	args = append(args, s.Spec.Image)
	switch {
	case s.Spec.ScriptPath != "":
		args = append(args, "python", s.Spec.ScriptPath)
	default:
		args = append(args, s.Spec.Command...)
	}
	p := attempt.Process{Args: args, Env: pairs(chosen(s.Base, ofClient())), Dir: s.Work}
	describe(&p, s, rank)
	if l.People {
		p.CPUs = cpus(s, rank, b.Processors)
	}
	return p
}

// clientFlags are the flags with which every command of a container runtime begins.
func clientFlags(l installation.Layout, s launch.Setting) []string {
	if l.People {
		return podmanFlags(s.Base)
	}
	return nil
}

// userOf makes the program in a container a process of the job's user, so that it owns what it writes. If the runtime
// has no root, root inside stands for this user, or the user is kept.
func (b Bounds) userOf(r engine.Engine, base []string) []string {
	if b.User == nil || b.User.UID == 0 {
		return nil
	}
	if r == engine.Podman && os.Geteuid() != 0 {
		return []string{"--userns", "keep-id"}
	}
	if host := attempt.Variable(base, "DOCKER_HOST"); strings.HasPrefix(host, "unix:///run/user/") {
		return nil
	}
	return []string{"--user", fmt.Sprintf("%d:%d", b.User.UID, b.User.GID)}
}

// socketFolder returns the folder of the agent's socket, which jobs see as a whole: an agent that is started again
// makes a new socket. The path comes from a node's record, so only a folder that is made for that is shown.
func socketFolder(socket string) string {
	if dir := filepath.Dir(socket); filepath.IsAbs(socket) && filepath.Base(dir) == installation.SocketFolder {
		return dir
	}
	return ""
}
