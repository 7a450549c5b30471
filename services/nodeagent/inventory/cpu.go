package inventory

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// limits are what the control group and its ancestors allow; 0 is no limit.
type limits struct {
	cores  float64
	memory unit.Bytes
}

func (l *limits) lower(cores float64, memory unit.Bytes) {
	if cores > 0 && (l.cores == 0 || cores < l.cores) {
		l.cores = cores
	}
	if memory > 0 && (l.memory == 0 || memory < l.memory) {
		l.memory = memory
	}
}

// readLimits reads /proc/self/cgroup (membership) and the limits below mount, for both versions of control groups.
func readLimits(membership, mount string) limits {
	var l limits
	for line := range strings.Lines(membership) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		controllers, path := strings.Split(parts[1], ","), parts[2]
		switch {
		case parts[1] == "":
			eachAbove(path, func(p string) {
				l.lower(quotaV2(filepath.Join(mount, p)), memoryLimit(filepath.Join(mount, p, "memory.max")))
			})
		case slices.Contains(controllers, "cpu"):
			eachAbove(path, func(p string) { l.lower(quotaV1(filepath.Join(mount, "cpu", p)), 0) })
		case slices.Contains(controllers, "memory"):
			eachAbove(path, func(p string) { l.lower(0, memoryLimit(filepath.Join(mount, "memory", p, "memory.limit_in_bytes"))) })
		}
	}
	return l
}

// eachAbove calls f with a group and all its ancestors.
func eachAbove(path string, f func(string)) {
	for path = filepath.Clean("/" + path); ; path = filepath.Dir(path) {
		f(path)
		if path == "/" {
			return
		}
	}
}

func quotaV2(group string) float64 {
	quota, period, found := strings.Cut(word(filepath.Join(group, "cpu.max")), " ")
	if !found {
		return 0
	}
	return ratio(quota, period)
}

func quotaV1(group string) float64 {
	return ratio(word(filepath.Join(group, "cpu.cfs_quota_us")), word(filepath.Join(group, "cpu.cfs_period_us")))
}

// ratio returns quota / period in cores; 0 if either is no positive number ("max", -1).
func ratio(quota, period string) float64 {
	q, errQ := strconv.ParseFloat(quota, 64)
	p, errP := strconv.ParseFloat(period, 64)
	if errors.Join(errQ, errP) != nil || q <= 0 || p <= 0 {
		return 0
	}
	return q / p
}

func memoryLimit(path string) unit.Bytes {
	n, err := strconv.ParseInt(word(path), 10, 64)
	if err != nil || n <= 0 {
		return 0
	}
	return unit.Bytes(n)
}

func word(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// coreCount returns the number of cores that this process can use: a fraction of a core counts as a whole one.
func coreCount(allowed int, l limits) int {
	if l.cores == 0 {
		return allowed
	}
	return max(1, min(allowed, int(math.Ceil(l.cores))))
}

// parseMemory reads the total of /proc/meminfo.
func parseMemory(text string) (unit.Bytes, error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "MemTotal:" && fields[2] == "kB" {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("parse /proc/meminfo: %w", err)
			}
			return unit.Bytes(n) * unit.KiB, nil
		}
	}
	return 0, errors.New("parse /proc/meminfo: no MemTotal in it")
}
