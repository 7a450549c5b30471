package supervisor

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/sourcegraph/conc"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/engine"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// stage is the thread from which programs are started. It has the file system, the working folder and the processors of
// the programs, so each has them from its first instruction and no program runs in between. The rest of the supervisor
// keeps those of the machine.
type stage struct {
	launch attempt.Launch
	tasks  chan func()
	// processors are those of a program that is bound to none.
	processors unix.CPUSet
	nothing    *os.File
	// leave moves the thread out of the control group of the programs.
	leave func() error
}

// newStage makes the file system of the programs, which can gain no rights by executing a setuid program. base is any
// folder; the programs do not see it covered.
func newStage(l attempt.Launch, base string) (*stage, error) {
	nothing, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	s := &stage{launch: l, tasks: make(chan func()), nothing: nothing, leave: func() error { return nil }}
	var thread conc.WaitGroup // the kernel kills the programs when the thread that started them ends: it never does
	thread.Go(func() {
		runtime.LockOSThread()
		for task := range s.tasks {
			task()
		}
	})
	return s, s.do(func() error {
		if err := unix.SchedGetaffinity(0, &s.processors); err != nil {
			return fmt.Errorf("read the processors: %w", err)
		}
		var err error
		if s.leave, err = l.OwnGroup().Enter(); err != nil {
			return err
		}
		err = s.own(base)
		if l.Held {
			unix.Umask(0o022) // that of the supervisor is for the executor
		}
		if err != nil || l.Runtime != engine.None { // podman without root uses setuid programs
			return err
		}
		return os.NewSyscallError("give up new privileges", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	})
}

// own gives the thread a working folder, or a whole file system, of its own.
func (s *stage) own(base string) error {
	if s.launch.Sandbox == attempt.SandboxNone {
		// A container's engine may forbid it. Then the whole supervisor changes its folder; all of its paths are
		// absolute.
		if err := unix.Unshare(unix.CLONE_FS); err != nil && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("unshare the working folder: %w", err)
		}
		return nil
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	return enter(base, s.launch)
}

// do runs a task on the thread.
func (s *stage) do(task func() error) error {
	done := make(chan error)
	s.tasks <- func() { done <- task() }
	return <-done
}

// start starts a program and returns its process number once the program has taken over.
func (s *stage) start(p attempt.Process, files [3]*os.File, attributes *syscall.SysProcAttr) (pid int, err error) {
	attributes.Pdeathsig = syscall.SIGKILL // a program must not outlive its supervisor
	if attributes.Credential, err = s.launch.User.Credential(); err != nil {
		return 0, err
	}
	placed, err := s.launch.OwnGroup().Place(attributes)
	if err != nil {
		return 0, err
	}
	defer placed()
	err = s.do(func() error {
		if err := s.bind(attempt.First(p.CPUs, p.Cores)); err != nil {
			return err
		}
		if err := os.Chdir(p.Dir); err != nil {
			return fmt.Errorf("enter the working folder: %w", attempt.Plain(err))
		}
		program, name, err := find(p)
		if err != nil {
			return err
		}
		execute := func(program string, args ...string) error {
			// The supervisor reaps all its children itself, adopted orphans too.
			pid, _, err = syscall.StartProcess(program, append(args, p.Args[1:]...), &syscall.ProcAttr{
				Env: p.Env, Files: []uintptr{files[0].Fd(), files[1].Fd(), files[2].Fd()}, Sys: attributes,
			})
			return err
		}
		// The name is passed on as given, because interpreters find their libraries by it.
		if err = execute(program, name); err == nil {
			return nil
		}
		begin := beginning(program)
		if errors.Is(err, unix.ENOEXEC) && !bytes.ContainsRune(begin, 0) {
			const shell = "/bin/sh" // runs a script that names no interpreter, as every shell does
			err = execute(shell, shell, program)
		}
		if err == nil {
			return nil
		}
		return cannotExecute(program, begin, err)
	})
	return pid, err
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

// beside returns what runs beside the ranks, on a kind of terminal; without a command that is a shell.
func beside(l attempt.Launch, terminal string, command []string) attempt.Process {
	p := l.Beside
	if len(command) == 0 {
		command = []string{"sh", "-c", `exec "${SHELL:-sh}"`}
	}
	p.Env, p.Args = append(slices.Clone(p.Env), "TERM="+cmp.Or(terminal, "dumb")), append(slices.Clone(p.Args), command...)
	return p
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

// find looks the program up in the PATH of the job as a shell would. It also returns the name by which it was found.
func find(p attempt.Process) (program, name string, err error) {
	if len(p.Args) == 0 || p.Args[0] == "" {
		return "", "", errors.New("no command")
	}
	var errs []string
	for _, name := range []string{p.Args[0], p.Fallback} {
		if name == "" {
			continue
		}
		program, err := attempt.LookUp(name, p.Env)
		if err == nil {
			return program, name, nil
		}
		errs = append(errs, err.Error())
	}
	return "", "", errors.New(strings.Join(errs, "; "))
}

// bind keeps the thread, and the program that it starts next, on the given processors. If none are given, both may
// use all of the supervisor's.
func (s *stage) bind(cpus []int) error {
	set := s.processors
	if len(cpus) > 0 {
		set.Zero()
	}
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("bind to the processors %v: %w", cpus, err)
	}
	return nil
}
