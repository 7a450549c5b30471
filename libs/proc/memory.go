package proc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Memory returns the main memory of processes in bytes. Memory that several of them share counts once, but is read only
// if the sum without that exceeds enough: the kernel takes long to work it out.
func (r Root) Memory(pids []int, enough int64) int64 {
	resident := int64(0)
	for _, pid := range pids {
		resident += r.resident(pid)
	}
	if resident <= enough {
		return resident
	}
	proportional := int64(0)
	for _, pid := range pids {
		proportional += r.proportional(pid)
	}
	return min(proportional, resident)
}

// resident returns the memory of a process with all that it shares; 0 if it has ended.
func (r Root) resident(pid int) int64 {
	text, err := os.ReadFile(filepath.Join(string(r), strconv.Itoa(pid), "statm"))
	if fields := strings.Fields(string(text)); err == nil && len(fields) > 1 {
		if pages, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
			return pages * int64(os.Getpagesize())
		}
	}
	return 0
}

// proportional returns the memory of a process with its part of what it shares. The process of another user shows
// only all of it.
func (r Root) proportional(pid int) int64 {
	text, err := os.ReadFile(filepath.Join(string(r), strconv.Itoa(pid), "smaps_rollup"))
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, "Pss:"); err == nil && found {
			if kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64); err == nil {
				return kib << 10
			}
		}
	}
	return r.resident(pid)
}
