package simrun

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// Bar shows on a terminal how far all simulations together have come. A nil Bar shows nothing.
type Bar struct {
	out   io.Writer
	mu    sync.Mutex
	done  []int
	total int
	start time.Time
	shown time.Time
}

// NewBar returns a bar for a terminal.
func NewBar(terminal io.Writer) *Bar { return &Bar{out: terminal} }

func (b *Bar) begin(simulations []sim.Config) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.start = time.Now()
	b.shown = b.start
	b.total, b.done = 0, make([]int, len(simulations))
	for _, c := range simulations {
		b.total += len(c.Workload.Jobs)
	}
}

// set notes how many jobs a simulation has completed.
func (b *Bar) set(run, done int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done[run] = done
	now := time.Now()
	if now.Sub(b.shown) < 200*time.Millisecond {
		return
	}
	b.shown = now
	sum := 0
	for _, d := range b.done {
		sum += d
	}
	_, _ = fmt.Fprintf(b.out, "\r\x1b[K%s", progress(sum, b.total, now.Sub(b.start)))
}

func (b *Bar) clear() {
	if b != nil {
		_, _ = fmt.Fprint(b.out, "\r\x1b[K")
	}
}

// progress is a bar and the time that is left, if everything goes on as it went.
func progress(done, total int, elapsed time.Duration) string {
	const width = 30
	full, left := 0, ""
	if total > 0 {
		full = min(done*width/total, width)
	}
	if done > 0 && done < total {
		rest := time.Duration(float64(elapsed) * float64(total-done) / float64(done))
		left = fmt.Sprintf(", about %s left", rest.Round(time.Second))
	}
	return fmt.Sprintf("%s%s %d of %d jobs%s", strings.Repeat("#", full), strings.Repeat(".", width-full), done, total, left)
}
