package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/results"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// LogOptions select and format the output of a job.
type LogOptions struct {
	follow bool
	raw    bool
	// Tail is the number of lines from the end; negative: everything.
	Tail int
}

func logsCommand(a *console.Console) *cobra.Command {
	o := LogOptions{Tail: -1}
	cmd := &cobra.Command{
		Use:   "logs JOB",
		Short: "Show the output of a job, also after it has ended",
		Long: `Shows the output of all attempts of a job. Control characters are made visible unless --raw is given. With -f it goes on until the job has
ended. With -o json each line is an object {"job", "line"}.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("tail") && o.Tail < 0 {
				return exit.Usagef("--tail %d: want 0 or more lines", o.Tail)
			}
			if o.raw && a.Output == "json" {
				return exit.Usagef("--raw and -o json exclude each other")
			}
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error { return Logs(ctx, a, y, args[0], o) })
		},
	}
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "go on until the job has ended")
	cmd.Flags().IntVar(&o.Tail, "tail", -1, "begin with the last N lines (default: everything)")
	cmd.Flags().BoolVar(&o.raw, "raw", false, "print the output unchanged, control sequences included")
	return cmd
}

func Logs(ctx context.Context, a *console.Console, y console.Yard, ref string, o LogOptions) error {
	job, err := y.Find(ctx, ref, exit.Failed)
	if err != nil {
		return err
	}
	if members := job.Members(); len(members) > 0 {
		return exit.Errorf(exit.Usage, fmt.Sprintf("name one of its jobs: `switchyard logs %s`", members[0]), "%s is an array of %d jobs", job.ID, len(members))
	}
	r := &logReader{yard: y, job: job, stderr: a.Stderr, follow: o.follow, poll: LogPoll, patience: askTimeout}
	out := logWriter(a, job.ID, o.raw)
	err = r.copy(ctx, out, o.Tail)
	if flushed := out.Flush(); err == nil {
		err = flushed
	}
	if err == nil && r.job.State.Terminal() {
		r.card(ctx)
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // an interrupt is the usual end
	}
	return err
}

// flusher is a writer that may hold back a part until Flush.
type flusher interface {
	io.Writer
	Flush() error
}

func logWriter(a *console.Console, id train.JobID, raw bool) flusher {
	switch {
	case a.Output == "json":
		return &lineEncoder{to: json.NewEncoder(a.Stdout), job: id}
	case raw:
		return rawWriter{render.Raw(a.Stdout)}
	}
	columns, _ := render.TerminalWidth(a.Stdout)
	return &render.OutputEscaper{To: render.Raw(a.Stdout), Live: columns}
}

type rawWriter struct{ io.Writer }

// Flush has nothing to do.
func (rawWriter) Flush() error { return nil }

// lineEncoder writes each line as a JSON object.
type lineEncoder struct {
	to   *json.Encoder
	job  train.JobID
	rest []byte
}

// Write encodes the lines that are complete.
func (l *lineEncoder) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		end := bytes.IndexByte(l.rest, '\n')
		if end < 0 {
			return len(p), nil
		}
		if err := l.encode(l.rest[:end]); err != nil {
			return 0, err
		}
		l.rest = l.rest[end+1:]
	}
}

func (l *lineEncoder) encode(line []byte) error {
	return l.to.Encode(struct {
		Job  train.JobID `json:"job"`
		Line string      `json:"line"`
	}{l.job, string(bytes.TrimSuffix(line, []byte("\r")))})
}

// Flush encodes a last line without an end.
func (l *lineEncoder) Flush() error {
	if len(l.rest) == 0 {
		return nil
	}
	defer func() { l.rest = nil }()
	return l.encode(l.rest)
}

// LogPoll is the time between two questions for output that is not there yet.
const LogPoll = 300 * time.Millisecond

// askTimeout bounds one question to an executor.
const askTimeout = 10 * time.Second

// logReader reads the output of a job from the executor of its node.
type logReader struct {
	yard   console.Yard
	job    train.Job
	node   train.NodeID
	stderr io.Writer
	follow bool
	// poll is the time between questions while nothing is new, patience the time to wait for an answer.
	poll, patience time.Duration
}

// copy writes the output to w: the last lines, or everything. With follow it goes on until the job has ended.
func (r *logReader) copy(ctx context.Context, w io.Writer, tail int) error {
	started, err := r.awaitNode(ctx)
	if err != nil || !started {
		return err
	}
	offset := int64(0)
	if tail >= 0 {
		data, next, err := r.readTail(ctx, tail)
		if err != nil {
			return r.fallBack(w, err)
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
		offset = next
		if !r.follow {
			return nil
		}
	}
	return r.stream(ctx, w, offset)
}

// stream copies from an offset. Without follow it stops where the output ended at the first answer.
func (r *logReader) stream(ctx context.Context, w io.Writer, offset int64) error {
	end, away, out := int64(-1), false, pieces{to: w}
	for {
		chunk, err := r.ask(ctx, offset)
		if err != nil && (!r.follow || !errors.Is(err, bus.ErrAway)) {
			return r.fallBack(w, err)
		}
		if err != nil && !away {
			fmt.Fprintf(r.stderr, "the executor of node %s does not answer; trying again\n", r.node)
		}
		away = err != nil
		if err := out.write(chunk); err != nil {
			return err
		}
		moved := !away && chunk.Next > offset
		offset = max(chunk.Next, offset)
		if end < 0 {
			end = chunk.Size
		}
		if r.complete(ctx, chunk, moved, offset >= end) {
			return nil
		}
		if moved && !chunk.Ended {
			continue
		}
		if !tick.Pause(ctx, r.poll) {
			return ctx.Err()
		}
	}
}

// pieces writes pieces of a log. What follows a gap begins a line.
type pieces struct {
	to     io.Writer
	within bool
}

func (p *pieces) write(c rpc.LogChunk) error {
	if c.Cut && p.within {
		c.Data = append([]byte("\n"), c.Data...)
	}
	if n := len(c.Data); n > 0 {
		p.within = c.Data[n-1] != '\n'
	}
	_, err := p.to.Write(c.Data)
	return err
}

// complete reports whether nothing is left to copy after a chunk. moved says that the chunk brought new output, whole
// that the output has been copied up to its end at the first answer.
func (r *logReader) complete(ctx context.Context, chunk rpc.LogChunk, moved, whole bool) bool {
	if !r.follow {
		return !moved || whole
	}
	return chunk.Ended && r.ended(ctx)
}

// ask reads a piece of the output. A negative offset counts from the end.
func (r *logReader) ask(ctx context.Context, offset int64) (rpc.LogChunk, error) {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	return r.yard.Log(ctx, r.node, r.job.ID, offset)
}

// readTail returns the last lines and the offset behind them.
func (r *logReader) readTail(ctx context.Context, lines int) (data []byte, next int64, err error) {
	const first = 32 << 10
	for window := int64(first); ; window *= 4 {
		chunk, err := r.ask(ctx, -window)
		if err != nil {
			return nil, 0, err
		}
		size := chunk.Size
		for data = chunk.Data; chunk.Next < size && len(chunk.Data) > 0; data = append(data, chunk.Data...) {
			if chunk, err = r.ask(ctx, chunk.Next); err != nil {
				return nil, 0, err
			}
		}
		if kept, enough := lastLines(data, lines); enough || window >= size {
			return kept, chunk.Next, nil
		}
	}
}

// lastLines returns the last lines of data; a last line without a line end counts. enough is false if data has fewer
// lines, and may therefore begin within a line.
func lastLines(data []byte, lines int) (last []byte, enough bool) {
	at := len(data)
	if at > 0 && data[at-1] == '\n' {
		at--
	}
	if lines == 0 {
		return nil, true
	}
	for range lines {
		end := bytes.LastIndexByte(data[:at], '\n')
		if end < 0 {
			return data, false
		}
		at = end
	}
	return data[at+1:], true
}

// awaitNode finds the node that has the job's output. It returns false if the job has not started and follow is not
// set.
func (r *logReader) awaitNode(ctx context.Context) (bool, error) {
	const look = 1 // most jobs start within one poll: nobody waits for them
	for looks := 0; ; looks++ {
		standing, err := r.yard.Standing(ctx, r.job.ID)
		if err == nil {
			r.job = standing.Job
		}
		switch node := standing.Home; {
		case err != nil && (!r.follow || ctx.Err() != nil):
			return false, err
		case node != "":
			r.node = node
			return true, nil
		case err == nil && (r.job.State.Terminal() || !r.follow):
			fmt.Fprintf(r.stderr, "no output: job %s has not started; %s\n", r.job.ID, lineOf(r.job))
			return false, nil
		case looks == look:
			fmt.Fprintf(r.stderr, "waiting for job %s to start; %s\n", r.job.ID, lineOf(r.job))
		}
		if !tick.Pause(ctx, r.poll) {
			return false, ctx.Err()
		}
	}
}

// lineOf says in which state a job is, and why.
func lineOf(j train.Job) string {
	line := fmt.Sprintf("it is %s", j.State)
	if j.Message != "" {
		line += " (" + render.EscapeText(j.Message) + ")"
	}
	return line
}

// ended reads in the register whether the job is over, as the executor says, and prints how it ended. If the register
// does not answer, the caller asks again later.
func (r *logReader) ended(ctx context.Context) bool {
	job, err := r.yard.Find(ctx, string(r.job.ID), exit.Failed)
	if err != nil || !job.State.Terminal() {
		return false
	}
	r.job = job
	fmt.Fprintln(r.stderr, endLine(r.job))
	return true
}

// fallBack shows the end of the output that the register keeps, if the executor does not answer. It returns the
// error.
func (r *logReader) fallBack(w io.Writer, cause error) error {
	if r.job.LogTail == "" {
		return cause
	}
	fmt.Fprintln(r.stderr, "the end of the output, from the register:")
	_, err := io.WriteString(w, strings.TrimSuffix(r.job.LogTail, "\n")+"\n")
	return errors.Join(cause, err)
}

// card closes the log of a job that has ended: with what it took, and where its files are. What does not answer is left
// out.
func (r *logReader) card(ctx context.Context) {
	d, err := r.settled(ctx)
	if err != nil {
		return
	}
	c := render.Card{Job: r.job, Report: d.Report, Account: d.Account}
	if d.Attempt != nil {
		c.Places = d.Attempt.Places()
	}
	if answer, err := results.Ask(ctx, r.yard, rpc.FileRequest{Job: r.job.ID}); err == nil {
		c.Folders = &answer.Folders
	}
	for _, line := range c.Lines() {
		fmt.Fprintf(r.stderr, "  %-10s  %s\n", line[0], line[1])
	}
}

// settled returns what is known about the job, with its energy. That is final about a second after the job's end, which
// is worth a wait after a long run only. Long after the end it is not measured at all.
func (r *logReader) settled(ctx context.Context) (view.Detail, error) {
	const part, most, fresh = 10, 3 * time.Second, 10 * time.Second
	patience := min(time.Duration(r.job.RunSeconds*float64(time.Second))/part, most)
	if time.Since(r.job.FinishedAt) > fresh {
		patience = 0
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		d, err := r.yard.Job(ctx, string(r.job.ID), exit.Failed)
		if err != nil || d.Account != nil && d.Account.Final || !tick.Pause(wait, r.poll) {
			return d, err
		}
	}
}
