package cli

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

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// logOptions say what of a job's output is shown, and how.
type logOptions struct {
	follow bool
	raw    bool
	// tail is how many lines from the end; negative: everything.
	tail int
}

func (a *app) logsCommand() *cobra.Command {
	o := logOptions{tail: -1}
	cmd := &cobra.Command{
		Use:   "logs JOB",
		Short: "Show the output of a job, also after it has ended",
		Long: `Shows what all attempts of a job have written. Control characters are shown and not obeyed unless --raw is given. With -f it goes on until the job has
ended. With -o json each line is an object {"job", "line"}.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("tail") && o.tail < 0 {
				return failure(ExitUsage, "", "--tail %d: want 0 or more lines", o.tail)
			}
			if o.raw && a.output == "json" {
				return failure(ExitUsage, "", "--raw and -o json exclude each other")
			}
			return a.withBus(cmd, func(ctx context.Context, b *bus.Bus) error { return a.logs(ctx, b, args[0], o) })
		},
	}
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "go on until the job has ended")
	cmd.Flags().IntVar(&o.tail, "tail", -1, "begin with the last N lines (default: everything)")
	cmd.Flags().BoolVar(&o.raw, "raw", false, "pass everything on as it is, control sequences included")
	return cmd
}

func (a *app) logs(ctx context.Context, b *bus.Bus, ref string, o logOptions) error {
	job, err := findJob(ctx, b, ref, ExitError)
	if err != nil {
		return err
	}
	r := &logReader{bus: b, job: job, stderr: a.stderr, follow: o.follow, poll: logPoll, patience: askTimeout}
	out := a.logWriter(job.ID, o.raw)
	err = r.copy(ctx, out, o.tail)
	if flushed := out.Flush(); err == nil {
		err = flushed
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the person has seen enough
	}
	return err
}

// flusher is a writer that keeps something back until the end.
type flusher interface {
	io.Writer
	Flush() error
}

func (a *app) logWriter(id train.JobID, raw bool) flusher {
	switch {
	case a.output == "json":
		return &lineEncoder{to: json.NewEncoder(a.stdout), job: id}
	case raw:
		return rawWriter{a.stdout}
	}
	return &outputEscaper{to: a.stdout}
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

// logPoll is how often a job that writes nothing is asked again.
const logPoll = 300 * time.Millisecond

// askTimeout bounds one question to an executor.
const askTimeout = 10 * time.Second

// logReader reads the output of a job from the executor of its node.
type logReader struct {
	bus    *bus.Bus
	job    train.Job
	node   train.NodeID
	stderr io.Writer
	follow bool
	// poll is how often to ask again where there is nothing new, patience how long to wait for an answer.
	poll, patience time.Duration
}

// copy writes the output to w: the last lines of it, or everything, and with follow what comes later, until the job has ended.
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

// stream copies from an offset on: without follow up to what is there at the first answer.
func (r *logReader) stream(ctx context.Context, w io.Writer, offset int64) error {
	end, said := int64(-1), false
	for {
		chunk, err := r.ask(ctx, offset)
		switch {
		case err != nil && !r.follow:
			return r.fallBack(w, err)
		case errors.Is(err, bus.ErrAway):
			if !said {
				_, _ = fmt.Fprintf(r.stderr, "the executor of node %s does not answer; trying again\n", r.node)
			}
			said = true
		case err != nil:
			return r.fallBack(w, err)
		}
		if _, err := w.Write(chunk.Data); err != nil {
			return err
		}
		moved := err == nil && chunk.Next > offset
		if err == nil {
			offset, said = max(chunk.Next, offset), false
		}
		if end < 0 {
			end = chunk.Size
		}
		switch {
		case !r.follow && (!moved || offset >= end):
			return nil
		case moved && !chunk.Ended:
			continue
		case chunk.Ended && r.ended(ctx):
			return nil
		}
		if !pause(ctx, r.poll) {
			return ctx.Err()
		}
	}
}

// ask reads a piece from an offset on; a negative one counts from the end.
func (r *logReader) ask(ctx context.Context, offset int64) (train.LogChunk, error) {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	chunk, err := bus.Ask[train.LogRequest, train.LogChunk](ctx, r.bus, train.LogSubject(r.node), train.LogRequest{Job: r.job.ID, Offset: offset})
	if err != nil && (errors.Is(err, context.DeadlineExceeded) || r.bus.Ready() != nil) {
		err = fmt.Errorf("%w: %w", bus.ErrAway, err)
	}
	return chunk, err
}

// readTail reads the last lines and gives the offset behind them.
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

// lastLines gives the last lines of data, a last one without an end counted; enough is false where data has fewer and may begin within a line.
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

// awaitNode finds out where the job's output is. False where there is none: the job has not started, and nobody waits for it.
func (r *logReader) awaitNode(ctx context.Context) (bool, error) {
	for said := false; ; said = true {
		node, err := r.findNode(ctx)
		switch {
		case err != nil && (!r.follow || ctx.Err() != nil):
			return false, err
		case node != "":
			r.node = node
			return true, nil
		case err == nil && (r.job.State.Terminal() || !r.follow):
			_, _ = fmt.Fprintf(r.stderr, "no output: job %s has not started; %s\n", r.job.ID, standing(r.job))
			return false, nil
		case !said:
			_, _ = fmt.Fprintf(r.stderr, "waiting for job %s to start; %s\n", r.job.ID, standing(r.job))
		}
		if !pause(ctx, r.poll) {
			return false, ctx.Err()
		}
	}
}

// findNode reads the register, then where the newest attempt is or was; empty where there was none.
func (r *logReader) findNode(ctx context.Context) (train.NodeID, error) {
	if err := r.refresh(ctx); err != nil {
		return "", err
	}
	attempt, found, err := getIfThere[train.Attempt](ctx, r.bus, event.BucketAttempts, string(r.job.ID))
	if err != nil || found && attempt.Number > 0 {
		return attempt.Home(), err
	}
	// The record of a job that ended long ago is deleted; where it was started is still told.
	started, _, err := lastIfThere[event.Started](ctx, r.bus, event.StreamJobs, event.JobSubject(r.job.ID, event.FactStarted))
	return started.Node, err
}

// standing is the state of a job and why.
func standing(j train.Job) string {
	line := fmt.Sprintf("it is %s", j.State)
	if j.Message != "" {
		line += " (" + escapeText(j.Message) + ")"
	}
	return line
}

func (r *logReader) refresh(ctx context.Context) error {
	job, found, err := getIfThere[train.Job](ctx, r.bus, event.BucketJobs, string(r.job.ID))
	if found {
		r.job = job
	}
	return err
}

// ended checks in the register whether the job is over, as the executor says, and tells how it ended. A register that does not answer is asked again later.
func (r *logReader) ended(ctx context.Context) bool {
	if err := r.refresh(ctx); err != nil || !r.job.State.Terminal() {
		return false
	}
	_, _ = fmt.Fprintln(r.stderr, endLine(r.job))
	return true
}

// fallBack shows what the register has kept of the output when the executor cannot tell, and passes the error on.
func (r *logReader) fallBack(w io.Writer, cause error) error {
	if r.job.LogTail == "" {
		return cause
	}
	_, _ = fmt.Fprintln(r.stderr, "the end of the output, as the register has kept it:")
	_, err := io.WriteString(w, strings.TrimSuffix(r.job.LogTail, "\n")+"\n")
	return errors.Join(cause, err)
}

// pause waits; false when ctx ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
