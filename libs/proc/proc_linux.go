package proc

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Processors returns the processors on which this process may run, in ascending order.
func Processors() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read the affinity mask: %w", err)
	}
	var processors []int
	for i := 0; len(processors) < set.Count(); i++ {
		if set.IsSet(i) {
			processors = append(processors, i)
		}
	}
	return processors, nil
}

// Signal signals a process if it is still the one that started at the given time.
func (r Root) Signal(pid int, start uint64, signal unix.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("signal %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if s, err := r.Process(pid); err != nil || s.Start != start {
		return nil // it has ended
	}
	if err := unix.PidfdSendSignal(fd, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal %d: %w", pid, err)
	}
	return nil
}
