package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Root is where the kernel's file system of processes is: /proc, but in tests.
type Root string

// Processes reads all processes, those that ended and were not waited for yet included: their times count until then.
func (r Root) Processes() (map[int]Stat, error) {
	reader := Reader{Root: r}
	return reader.Read()
}

// lookAgain is after how many readings threads of the kernel are looked at anew: by then a number may be another process's.
const lookAgain = 30

// Reader reads all processes again and again. Threads of the kernel, which are nobody's and often most of all there is, are read once in a while only; the
// readings between leave them out.
type Reader struct {
	Root Root
	// kernel are the numbers of the kernel's threads, as they were seen so many readings ago.
	kernel map[string]bool
	age    int
}

// Read gives the processes that there are.
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
			continue // it ended while we were reading
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

// statSize is more than a line of any process is long.
const statSize = 2048

// readOnce reads a small file of the kernel with one call. All processes are read every second: what os.ReadFile does beside that would be half of the work.
func readOnce(path string, buffer []byte) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	n, err := unix.Read(fd, buffer)
	return n, errors.Join(err, unix.Close(fd))
}

// CPU reads what the processors did.
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

// BootID names the run of the kernel.
func (r Root) BootID() (string, error) {
	text, err := os.ReadFile(filepath.Join(string(r), "sys/kernel/random/boot_id"))
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// Variable reads a variable of a process's environment as it was at its start; "" where it has none or may not be read.
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

// Forest is all processes, with who descends from whom.
type Forest struct {
	All      map[int]Stat
	children map[int][]int
}

// NewForest makes one of all processes.
func NewForest(all map[int]Stat) Forest {
	f := Forest{All: all, children: make(map[int][]int, len(all))}
	for _, s := range all {
		f.children[s.Parent] = append(f.children[s.Parent], s.PID)
	}
	return f
}

// Tree finds a process and all that descends from it; nil when the process is gone or its number was given to another one.
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
