// Command gpu tries on the GPUs of this machine everything in Switchyard that touches hardware: it reads them, loads
// them, and starts installations of its own that run jobs on them. It prints a table of what it saw, writes it to a
// page, and puts back what it changed. A machine without a GPU is an error: a run that tested nothing is not good.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
	"github.com/switchyard-dl/switchyard/services/nodeagent/nvml"
)

func main() {
	var s settings
	flag.StringVar(&s.bin, "bin", "bin", "folder of switchyard, switchyard-server, switchyard-supervisor and switchyard-trainer")
	flag.StringVar(&s.out, "out", "docs/gpu", "folder of the page")
	flag.StringVar(&s.image, "image", "debian:bookworm-slim", "container image of the row that uses a container engine")
	flag.StringVar(&s.only, "only", "", "run the rows whose name contains this")
	flag.DurationVar(&s.load, "load", 10*time.Second, "how long a GPU is kept busy for each measurement")
	flag.BoolVar(&s.used, "used", false, "go on although other programs use the GPUs; figures of energy are then wrong")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

type settings struct {
	bin, out, image, only string
	load                  time.Duration
	used                  bool
}

var errNoGPU = errors.New("there is no GPU here that NVML can read, so nothing was tested: run `make gpu` on a machine with an NVIDIA driver")

// run tries all rows and reports whether none is wrong.
func run(ctx context.Context, s settings) error {
	library, err := nvml.Open()
	if err != nil {
		return fmt.Errorf("%w (%w)", errNoGPU, err)
	}
	defer library.Close()
	devices, err := library.Devices()
	if err != nil || len(devices) == 0 {
		return errors.Join(errNoGPU, err)
	}
	b, err := open(ctx, s, library, devices)
	if err != nil {
		return err
	}
	defer b.close(ctx)
	rows := b.rows(ctx)
	table := tableOf(devices, rows)
	fmt.Print(table.text())
	if err := table.write(s.out); err != nil {
		return err
	}
	wrong := slices.ContainsFunc(rows, func(r row) bool { return r.verdict == verdictWrong })
	tried := slices.ContainsFunc(rows[:len(rows)-1], func(r row) bool { return r.verdict == verdictRight })
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case wrong:
		return errors.New("not everything is as expected")
	case !tried:
		return errors.New("nothing was tested")
	}
	return nil
}

// check is one row to be: what is tried, what is expected, and how.
type check struct {
	what, expected string
	try            func(context.Context, *bench) (seen string, err error)
}

// rows tries the checks one after the other; at the end, the GPUs must be as they were.
func (b *bench) rows(ctx context.Context) []row {
	before := b.state()
	var rows []row
	for _, group := range groups() {
		rows = append(rows, b.tryGroup(ctx, group)...)
	}
	after := b.state()
	last := row{what: "put back", expected: "power limits, partitions and processes are as before", seen: "they are", verdict: verdictRight}
	if before != after {
		last.seen, last.verdict = "before: "+before+"; after: "+after, verdictWrong
	}
	return append(rows, last)
}

// tryGroup tries checks that need the same installation.
func (b *bench) tryGroup(ctx context.Context, g group) []row {
	wanted := slices.DeleteFunc(g.checks, func(c check) bool { return !strings.Contains(c.what, b.only) })
	if len(wanted) == 0 || ctx.Err() != nil {
		return nil
	}
	start := func() error { return nil }
	if g.flags != nil {
		start = func() error { return b.start(ctx, g.flags(b)...) }
	}
	broken := start()
	var rows []row
	for _, c := range wanted {
		r := row{what: c.what, expected: c.expected}
		err := broken
		if err == nil {
			r.seen, err = c.try(ctx, b)
		}
		r.judge(err)
		fmt.Fprintf(os.Stderr, "%s: %s: %s\n", r.what, r.verdict, r.seen)
		rows = append(rows, r)
	}
	if g.flags != nil {
		b.stop(ctx)
	}
	return rows
}

// state describes what must be the same at the end.
func (b *bench) state() string {
	var words []string
	devices, err := b.library.Devices()
	if err != nil {
		return err.Error()
	}
	for _, d := range devices {
		word := string(d.ID()) + " " + d.UUID
		if limits, err := b.library.PowerLimits(d.Index); err == nil {
			word += fmt.Sprintf(" %g W", limits.Now.Watts())
		}
		words = append(words, word+fmt.Sprintf(" %d processes", len(b.processes(d))))
	}
	return strings.Join(words, ", ")
}

// processes lists the processes with a context on a GPU.
func (b *bench) processes(d gpu.Device) []gpu.Process {
	s, err := b.library.Sample(d.Index)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(s.Processes, func(p gpu.Process) bool { return !p.Context })
}

// pageName is the file of the page: the model in letters that every file system has.
func pageName(model string) string {
	word := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, model)
	return filepath.Clean(strings.Trim(word, "-") + ".md")
}
