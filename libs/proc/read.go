package proc

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Root is the mount point of the proc file system: /proc, except in tests.
type Root string

// Processes reads all processes. Ended processes that were not waited for are included: their times count until then.
func (r Root) Processes() (map[int]Stat, error) {
	reader := Reader{Root: r}
	return reader.Read()
}

// Living reads all processes that have not ended.
func (r Root) Living() (map[int]Stat, error) {
	all, err := r.Processes()
	maps.DeleteFunc(all, func(_ int, s Stat) bool { return s.Over() })
	return all, err
}

// lookAgain is the number of readings after which kernel threads are read again: by then a number may belong to another
// process.
const lookAgain = 30

// Reader reads all processes repeatedly. It reads kernel threads, which belong to no job and are often the majority,
// only now and then; the readings between leave them out.
type Reader struct {
	Root Root
	// kernel holds the numbers of the kernel's threads, as of a few readings ago.
	kernel map[string]bool
	age    int
}

// Read returns the current processes.
func (r *Reader) Read() (map[int]Stat, error) {
	folder, err := os.Open(string(r.Root))
	if err != nil {
		return nil, fmt.Errorf("open list of processes: %w", err)
	}
	defer func() { _ = folder.Close() }()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	if r.age--; r.age < 0 {
		r.kernel, r.age = map[string]bool{}, lookAgain
	}
	all := make(map[int]Stat, len(names))
	buffer := make([]byte, statSize)
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' || r.kernel[name] {
			continue
		}
		n, err := readOnce(string(r.Root)+"/"+name+"/stat", buffer)
		if err != nil {
			continue // it ended during the reading
		}
		s, err := ParseStat(buffer[:n])
		if err != nil {
			return nil, err
		}
		if s.Kernel {
			r.kernel[name] = true
		}
		all[s.PID] = s
	}
	return all, nil
}

// Process reads one process.
func (r Root) Process(pid int) (Stat, error) {
	line, err := os.ReadFile(filepath.Join(string(r), strconv.Itoa(pid), "stat"))
	if err != nil {
		return Stat{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	return ParseStat(line)
}

// statSize is larger than any line of a process.
const statSize = 2048

// readOnce reads a small file of the kernel with one call. All processes are read every second: the rest of os.ReadFile
// would be half of the work.
func readOnce(path string, buffer []byte) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	n, err := unix.Read(fd, buffer)
	return n, errors.Join(err, unix.Close(fd))
}

// CPU reads the times of the processors.
func (r Root) CPU() (CPU, error) {
	text, err := os.ReadFile(filepath.Join(string(r), "stat"))
	if err != nil {
		return CPU{}, fmt.Errorf("read processor times: %w", err)
	}
	return ParseCPU(text)
}

// Uptime reads the time since the boot.
func (r Root) Uptime() (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join(string(r), "uptime"))
	if err != nil {
		return 0, fmt.Errorf("read uptime: %w", err)
	}
	return ParseUptime(text)
}

// BootID returns the id of the running boot.
func (r Root) BootID() (string, error) {
	text, err := os.ReadFile(filepath.Join(string(r), "sys/kernel/random/boot_id"))
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// Variable returns a variable of a process's environment as it was at its start, or "" if it is missing or may not be
// read.
func (r Root) Variable(pid int, name string) string {
	environ, err := os.ReadFile(filepath.Join(string(r), strconv.Itoa(pid), "environ"))
	if err != nil {
		return ""
	}
	for pair := range strings.SplitSeq(string(environ), "\x00") {
		if value, found := strings.CutPrefix(pair, name+"="); found {
			return value
		}
	}
	return ""
}

// Command returns the command line of a process; nil if it cannot be read.
func (r Root) Command(pid int) []byte {
	line, err := os.ReadFile(filepath.Join(string(r), strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return nil
	}
	return line
}

// Catches reports whether a process has a handler for a signal. It reports false if the process cannot be read.
func (r Root) Catches(pid, signal int) bool {
	text, err := os.ReadFile(filepath.Join(string(r), strconv.Itoa(pid), "status"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if mask, found := strings.CutPrefix(line, "SigCgt:"); found {
			bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && signal > 0 && bits>>(signal-1)&1 == 1
		}
	}
	return false
}

// Forest is all processes with their children.
type Forest struct {
	All      map[int]Stat
	children map[int][]int
}

// NewForest builds the forest of all processes.
func NewForest(all map[int]Stat) Forest {
	f := Forest{All: all, children: make(map[int][]int, len(all))}
	for _, s := range all {
		f.children[s.Parent] = append(f.children[s.Parent], s.PID)
	}
	return f
}

// Tree returns a process and all its descendants; nil if the process is gone or its number was reused.
func (f Forest) Tree(pid int, start uint64) map[int]Stat {
	root, found := f.All[pid]
	if !found || root.Start != start {
		return nil
	}
	tree := map[int]Stat{pid: root}
	for open := []int{pid}; len(open) > 0; open = open[1:] {
		for _, child := range f.children[open[0]] {
			if _, seen := tree[child]; !seen {
				tree[child] = f.All[child]
				open = append(open, child)
			}
		}
	}
	return tree
}
