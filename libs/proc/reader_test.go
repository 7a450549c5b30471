package proc

import (
	"fmt"
	"path/filepath"
	"testing"
)

func TestThreadsOfTheKernelAreReadNowAndThen(t *testing.T) {
	root := t.TempDir()
	process := func(pid, flags int) {
		lay(t, root,
			map[string]string{fmt.Sprintf("%d/stat", pid): fmt.Sprintf("%d (x) S 1 0 0 0 0 %d 0 0 0 0 7 3 2 1 0 0 0 0 50", pid, flags)})
	}
	const thread, program = 0x208040, 0x400100
	process(2, program) // as in a container, where this number is nothing special
	process(9, thread)
	process(100, program)
	r := Reader{Root: Root(root)}
	for i := range lookAgain + 2 {
		if i == 5 {
			process(9, program) // the number now belongs to another process
		}
		all, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		due := i == 0 || i == lookAgain+1
		if _, read := all[9]; read != due || all[100].Own != 10 || all[2].PID != 2 {
			t.Errorf("reading %d of %s: %v", i, filepath.Base(root), all)
		}
	}
}
