package jobs

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// withProgress returns a console that keeps one line about a job below what is written to its terminal, and a function
// that removes the line. Without a terminal it returns the console as it is.
func withProgress(ctx context.Context, a *console.Console, y console.Yard, id train.JobID) (*console.Console, func()) {
	columns, terminal := render.TerminalWidth(a.Stderr)
	if !terminal || a.Output == "json" {
		return a, func() {}
	}
	line := &progressLine{terminal: render.Raw(a.Stderr), columns: columns}
	with := *a
	with.Stderr = render.NewGuard(aboveLine{line, render.Raw(a.Stderr)})
	if render.IsTerminal(a.Stdout) {
		with.Stdout = render.NewGuard(aboveLine{line, render.Raw(a.Stdout)})
	}
	ctx, cancel := context.WithCancel(ctx)
	var drawing conc.WaitGroup
	drawing.Go(func() {
		for now := range tick.Every(ctx, time.Second) {
			if text, err := progressOf(ctx, y, id, now); err == nil {
				line.set(text)
			}
		}
	})
	return &with, func() {
		cancel()
		drawing.Wait()
		line.set("")
	}
}

// progressLine is a line at the bottom of a terminal.
type progressLine struct {
	terminal io.Writer
	columns  int

	mu    sync.Mutex
	text  string
	drawn bool
	// within is set while the output above has not ended its line: nothing may be drawn then.
	within bool
}

func (p *progressLine) set(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if text == p.text {
		return
	}
	p.erase()
	p.text = text
	p.draw()
}

func (p *progressLine) erase() {
	if p.drawn {
		_, _ = io.WriteString(p.terminal, "\r\x1b[K")
		p.drawn = false
	}
}

func (p *progressLine) draw() {
	if p.text != "" && !p.within {
		_, _ = io.WriteString(p.terminal, render.ClipText(p.text, p.columns-1))
		p.drawn = true
	}
}

// aboveLine passes on what is written, above the progress line.
type aboveLine struct {
	line *progressLine
	to   io.Writer
}

// Write erases the line, writes, and draws it again.
func (w aboveLine) Write(data []byte) (int, error) {
	if len(data) == 0 {
		return 0, nil
	}
	w.line.mu.Lock()
	defer w.line.mu.Unlock()
	w.line.erase()
	n, err := w.to.Write(data)
	w.line.within = data[len(data)-1] != '\n'
	w.line.draw()
	return n, err
}

// progressOf says in one line how far a job is.
func progressOf(ctx context.Context, y console.Yard, id train.JobID, now time.Time) (string, error) {
	s, err := y.Standing(ctx, id)
	if err != nil || s.Job.State.Terminal() {
		return "", err
	}
	return progressText(s, now), nil
}

func progressText(s view.Standing, now time.Time) string {
	r := s.Job
	parts := []string{fmt.Sprintf("%s: %s", r.ID, r.State)}
	if ran := r.RunSecondsAt(now); ran > 0 {
		parts[0] += " " + render.Duration(math.Floor(ran))
	}
	if epochs := render.Epochs(r.EpochsDone, r.Spec.MaxEpochs); epochs != "-" {
		parts = append(parts, "epoch "+epochs)
	}
	if n := len(r.Devices); n > 0 {
		parts = append(parts, render.Plural(n, "device"))
	}
	var p train.Predicted
	if s.Plan != nil {
		p = s.Plan.Predicted
	}
	switch {
	case p.Start != nil:
		parts = append(parts, render.ETA(p, now))
	case p.Finish != nil:
		parts = append(parts, "to go: "+render.In(*p.Finish, now))
	}
	if len(r.Devices) == 0 && r.Message != "" {
		parts = append(parts, render.EscapeText(r.Message))
	}
	return strings.Join(parts, ", ")
}
