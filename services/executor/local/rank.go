package local

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The hidden first arguments with which the program starts itself.
const (
	supervisorArgument = "__shim"
	rankArgument       = "__rank"
	besideArgument     = "beside"
)

// failureFD is where a process that is about to become the job's program reports why it cannot. It closes by itself
// when the program takes over.
const failureFD = 3

// RunIfAsked takes over a process that was started as a supervisor or as one of its processes, and then does not
// return. Main functions call it first.
func RunIfAsked(args []string) {
	if len(args) < 2 {
		return
	}
	switch args[1] {
	case supervisorArgument:
		os.Exit(runSupervisor(args[2:])) //nolint:forbidigo // the process is the supervisor from here on: there is no main to go back to
	case rankArgument:
		os.Exit(runRank(args[2:])) //nolint:forbidigo // likewise
	}
}

// runRank prepares a process (processors, file system, folder, environment) and becomes the job's program. It returns
// only on failure.
func runRank(args []string) int {
	// What is set below belongs to the thread, and the thread that executes the program passes it on.
	runtime.LockOSThread()
	failure := os.NewFile(failureFD, "trouble")
	unix.CloseOnExec(failureFD)
	err := becomeRank(args)
	_, _ = io.WriteString(failure, err.Error())
	const cannotExecute = 127
	return cannotExecute
}

func becomeRank(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("start a process: want a folder and a rank, have %q", args)
	}
	launch, found, err := readJSON[Launch](filepath.Join(args[0], launchName))
	if err != nil || !found {
		return fmt.Errorf("start a process: no launch file in %s: %w", args[0], err)
	}
	p, err := launch.process(args[1:])
	if err != nil {
		return err
	}
	if err := bind(narrowed(p.CPUs, p.Cores)); err != nil {
		return err
	}
	if launch.Sandbox != SandboxNone {
		if err := enter(args[0], launch.Mounts); err != nil {
			return err
		}
	}
	if err := os.Chdir(p.Dir); err != nil {
		return fmt.Errorf("enter the working folder: %w", plain(err))
	}
	program, name, err := find(p)
	if err != nil {
		return err
	}
	// The program must not outlive its supervisor. The kernel resets this when privileges are dropped on the way, so
	// it is set again.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("tie the program to its supervisor: %w", err)
	}
	// The name is passed on as given, because interpreters find their libraries by it.
	err = syscall.Exec(program, append([]string{name}, p.Args[1:]...), p.Env)
	begin := beginning(program)
	if errors.Is(err, unix.ENOEXEC) && !bytes.ContainsRune(begin, 0) {
		const shell = "/bin/sh" // runs a script that names no interpreter, as every shell does
		err = syscall.Exec(shell, append([]string{shell, program}, p.Args[1:]...), p.Env)
	}
	return cannotExecute(program, begin, err)
}

// beginning returns the first bytes of a file.
func beginning(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	begin := make([]byte, 256) // the kernel reads no more of an interpreter's name
	n, _ := f.Read(begin)
	return begin[:n]
}

// process returns what the arguments of a process name: a rank, or what runs beside the ranks on a kind of terminal.
func (l Launch) process(args []string) (Process, error) {
	if args[0] == besideArgument && len(args) > 1 {
		p := l.Beside
		p.Env, p.Args = append(slices.Clone(p.Env), "TERM="+cmp.Or(args[1], "dumb")), slices.Clone(p.Args)
		if p.Args = append(p.Args, args[2:]...); len(args) == 2 {
			p.Args = append(p.Args, "sh", "-c", `exec "${SHELL:-sh}"`)
		}
		return p, nil
	}
	rank, err := strconv.Atoi(args[0])
	if err != nil || rank < 0 || rank >= len(l.Processes) {
		return Process{}, fmt.Errorf("start a process: no rank %q", args[0])
	}
	return l.Processes[rank], nil
}

// cannotExecute explains the kernel's error codes.
func cannotExecute(program string, begin []byte, err error) error {
	line, _, _ := bytes.Cut(begin, []byte("\n"))
	interpreter, script := bytes.CutPrefix(line, []byte("#!"))
	switch {
	case errors.Is(err, unix.ENOEXEC):
		return fmt.Errorf("cannot run %s: not a program for this machine", program)
	case errors.Is(err, unix.ENOENT) && bytes.HasSuffix(line, []byte("\r")):
		return fmt.Errorf(`cannot run %s: its first line ends as on Windows; sed -i 's/\r$//' %s makes it a script of Unix`, program, program)
	case errors.Is(err, unix.ENOENT) && script:
		return fmt.Errorf("cannot run %s: its first line names the interpreter %s, which is not there", program, strings.TrimSpace(string(interpreter)))
	default:
		return fmt.Errorf("cannot run %s: %w", program, err)
	}
}

// plain strips the operation from an error about a path, because the message is for the job's owner.
func plain(err error) error {
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return fmt.Errorf("%s: %w", path.Path, path.Err)
	}
	return err
}

// find looks the program up in the PATH of the job as a shell would. It also returns the name by which it was found.
func find(p Process) (program, name string, err error) {
	if len(p.Args) == 0 || p.Args[0] == "" {
		return "", "", errors.New("no command")
	}
	var errs []string
	for _, name := range []string{p.Args[0], p.Fallback} {
		if name == "" {
			continue
		}
		program, err := lookUp(name, p.Env)
		if err == nil {
			return program, name, nil
		}
		errs = append(errs, err.Error())
	}
	return "", "", errors.New(strings.Join(errs, "; "))
}

func lookUp(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	for _, dir := range filepath.SplitList(variable(env, "PATH")) {
		program := filepath.Join(dir, name)
		if executable(program) == nil {
			return filepath.Abs(program)
		}
	}
	if filepath.Ext(name) != "" && exists(name) {
		return "", fmt.Errorf("command not found: %s; to run the file of the working folder, put its interpreter before it, as in python3 %s", name, name)
	}
	return "", fmt.Errorf("command not found: %s", name)
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("command not found: %s", path)
	case err != nil:
		return fmt.Errorf("cannot run %w", plain(err))
	case info.IsDir():
		return fmt.Errorf("cannot run %s: is a folder", path)
	}
	if _, err := exec.LookPath(path); err != nil {
		return fmt.Errorf("cannot run %s: no permission to execute it (chmod +x gives it)", path)
	}
	return nil
}

// variable returns the last value of a name, which is the one that counts.
func variable(env []string, name string) string {
	value := ""
	for _, pair := range env {
		if v, found := strings.CutPrefix(pair, name+"="); found {
			value = v
		}
	}
	return value
}

// bind keeps the calling thread, and the program that it becomes, on the given processors.
func bind(cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("bind to the processors %v: %w", cpus, err)
	}
	return nil
}
