// Package pcm reads the energy of processors and memory from the log that Intel's PCM writes (`pcm.x /csv > FILE`),
// following the file as it grows.
//
// Each line holds the energy since the previous line, so nothing is lost between two readings of the file. Columns
// are found by their names in the header line that begins with Date; older versions separate by semicolons, newer
// ones by commas.
package pcm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/meter"
)

const (
	headerWord   = "Date"
	columnCPU    = "Proc Energy (Joules)"
	columnMemory = "DRAM Energy (Joules)"
	// readLimit bounds what is read at once: the rest of a log that grew by more is read the next time. headerLimit
	// is how far down a log its header is searched.
	readLimit   = 1 << 20
	headerLimit = 1 << 18
	// The log may stay unchanged for quietLines times the time between its lines, within these bounds.
	quietLines            = 3
	leastQuiet, mostQuiet = 10 * time.Second, 2 * time.Minute
)

// Log is a log that is being written. It is a meter.Source.
type Log struct {
	path    string
	columns *columns
	// file and offset are what was read so far.
	file   os.FileInfo
	offset int64
	// last is the time of the newest line, zero before the first; spacing is the time between the newest two, quiet
	// how long nothing was written.
	last           time.Time
	spacing, quiet time.Duration
	// doubted is set after an error since the newest line: another meter was used meanwhile, so the next line only
	// starts a new interval.
	doubted bool
}

// Open follows a log. The file need not exist yet.
func Open(path string) *Log { return &Log{path: path} }

// Method is the meter's name.
func (l *Log) Method() string { return "pcm" }

// Read returns the energy in the lines written since the last call. What was logged before the first call, or before
// an error was over, is ignored.
func (l *Log) Read(d time.Duration) ([]meter.Spent, error) {
	spent, err := l.follow(d)
	l.doubted = l.doubted || err != nil
	return spent, err
}

func (l *Log) follow(d time.Duration) ([]meter.Spent, error) {
	text, err := l.grown()
	if err != nil {
		return nil, err
	}
	var sum line
	var covered time.Duration
	l.quiet += d
	for row := range strings.Lines(text) {
		next, ok, err := l.parse(strings.TrimSpace(row))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", l.path, err)
		}
		if !ok {
			continue
		}
		if passed := next.at.Sub(l.last); !l.last.IsZero() && passed > 0 {
			l.spacing = passed
			if !l.doubted {
				sum.cpu, sum.memory = sum.cpu+next.cpu, sum.memory+next.memory
				covered += passed
			}
		}
		l.last, l.quiet, l.doubted = next.at, 0, false
	}
	switch {
	case l.columns == nil:
		return nil, fmt.Errorf("read %s: no header line that begins with %s and names %q", l.path, headerWord, columnCPU)
	case l.quiet > l.longest():
		return nil, fmt.Errorf("read %s: nothing was written for %s", l.path, l.quiet.Round(time.Second))
	case l.last.IsZero():
		return nil, nil
	}
	spent := []meter.Spent{{Component: event.ComponentCPU, Energy: sum.cpu, Covered: &covered}}
	if l.columns.memory >= 0 {
		spent = append(spent, meter.Spent{Component: event.ComponentDRAM, Energy: sum.memory, Covered: &covered})
	}
	return spent, nil
}

// longest is how long the log may stay unchanged.
func (l *Log) longest() time.Duration { return min(max(quietLines*l.spacing, leastQuiet), mostQuiet) }

// grown returns the complete lines written since the last call. In a log that is new or was started again, it only
// reads the header.
func (l *Log) grown() (string, error) {
	file, err := os.Open(l.path)
	if err != nil {
		return "", fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return "", fmt.Errorf("look at log: %w", err)
	}
	if l.file == nil || !os.SameFile(l.file, info) || info.Size() < l.offset {
		l.columns, l.last = nil, time.Time{}
		head, err := readAt(file, 0, headerLimit)
		if err != nil {
			return "", err
		}
		for row := range strings.Lines(head) {
			if _, _, err := l.parse(strings.TrimSpace(row)); l.columns != nil || err != nil {
				break
			}
		}
		// A line that is being written is read when it is complete.
		end := max(info.Size()-headerLimit, 0)
		tail, err := readAt(file, end, headerLimit)
		if err != nil {
			return "", err
		}
		l.offset = end + int64(len(tail))
	}
	l.file = info
	text, err := readAt(file, l.offset, readLimit)
	l.offset += int64(len(text))
	return text, err
}

// readAt returns the complete lines from an offset, up to a limit.
func readAt(file *os.File, offset, limit int64) (string, error) {
	text, err := io.ReadAll(io.NewSectionReader(file, offset, limit))
	if err != nil {
		return "", fmt.Errorf("read log: %w", err)
	}
	return string(text[:bytes.LastIndexByte(text, '\n')+1]), nil
}

// columns are the positions named by a header line. Memory is -1 if it is not logged.
type columns struct {
	separator         string
	date, clock       int
	processor, memory int
}

// line is the content of one line.
type line struct {
	at          time.Time
	cpu, memory unit.Energy
}

// parse parses a line; ok is false for lines without data: headers, which it remembers, and what precedes them.
func (l *Log) parse(text string) (parsed line, ok bool, err error) {
	if strings.HasPrefix(text, headerWord) {
		l.columns = header(text)
		return line{}, false, nil
	}
	if l.columns == nil || text == "" || strings.HasPrefix(text, "System") {
		return line{}, false, nil
	}
	c := l.columns
	fields := strings.Split(text, c.separator)
	if len(fields) <= max(c.processor, c.memory, c.clock) {
		return line{}, false, fmt.Errorf("line %.80q is too short", text)
	}
	at, timeErr := time.Parse(time.DateOnly+" "+time.TimeOnly, strings.TrimSpace(fields[c.date])+" "+strings.TrimSpace(fields[c.clock]))
	cpu, cpuErr := joules(fields[c.processor])
	memory, memoryErr := unit.Energy(0), error(nil)
	if c.memory >= 0 {
		memory, memoryErr = joules(fields[c.memory])
	}
	return line{at, cpu, memory}, true, errors.Join(timeErr, cpuErr, memoryErr)
}

// header finds the columns; it returns nil without the energy of processors. The first column of a name is that of
// the whole machine.
func header(text string) *columns {
	separator := ";"
	if !strings.Contains(text, separator) {
		separator = ","
	}
	names := strings.Split(text, separator)
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	c := columns{
		separator: separator, date: slices.Index(names, headerWord), clock: slices.Index(names, "Time"),
		processor: slices.Index(names, columnCPU), memory: slices.Index(names, columnMemory),
	}
	if c.date < 0 || c.clock < 0 || c.processor < 0 {
		return nil
	}
	return &c
}

func joules(field string) (unit.Energy, error) {
	const most = 1e9
	j, err := strconv.ParseFloat(strings.TrimSpace(field), 64)
	if err != nil {
		return 0, err
	}
	if !(j >= 0 && j <= most) {
		return 0, fmt.Errorf("%g J between two lines", j)
	}
	return unit.Energy(j*float64(unit.Joule) + 0.5), nil
}
