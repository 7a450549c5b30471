package proc

import (
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
