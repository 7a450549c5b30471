// Package proxy does for programs that do not call the job API what they would: it reads their epochs, steps and
// checkpoints from what they write, reports them, and passes on by a signal that they have to leave. It runs in the
// supervisor of an attempt and decides nothing.
package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/joblog/epochs"
	"github.com/switchyard-dl/switchyard/libs/joblog/progress"
)

// Spec says what a supervisor tells the job API, and asks it, for programs that do not call it themselves.
type Spec struct {
	// Address is that of the attempt's requests to the job API.
	Address string `json:"address"`
	Sight
	// Format is the format in which the output of the first worker has its epochs; empty if it has none.
	Format string `json:"format,omitempty"`
	// Pattern finds progress in the lines of this output, Tables and Boards are patterns of CSV files and of TensorBoard's
	// event files that have it, and Names are the program's names of what is read there.
	Pattern string            `json:"pattern,omitempty"`
	Tables  []string          `json:"tables,omitempty"`
	Boards  []string          `json:"boards,omitempty"`
	Names   map[string]string `json:"names,omitempty"`
	// FromZero is a file of the job, made once its program has counted an epoch 0: an attempt that resumes counts alike.
	FromZero string `json:"from_zero,omitempty"`
	// Checkpoints are patterns of the files that the programs save.
	Checkpoints []string `json:"checkpoints,omitempty"`
	// Signals lets processes that catch SIGUSR1 leave by it. EndsBySignal lets all others be ended by SIGTERM, after a
	// checkpoint.
	Signals      bool `json:"signals,omitempty"`
	EndsBySignal bool `json:"ends_by_signal,omitempty"`
	// LookMillis is the time between two looks at the programs and the job API (default: a second).
	LookMillis int64 `json:"look_ms,omitempty"`
}

// reportPatience is how long the end of an attempt waits for an agent that is unreachable. reportDelay is the delay
// before the next try.
const (
	reportPatience = 30 * time.Second
	reportDelay    = 500 * time.Millisecond
	reportTimeout  = 5 * time.Second
)

// report is a request to the job API: what is its name for people.
type report struct {
	path, what string
	body       []byte
}

// Proxy calls the job API for programs. It lives as long as the supervisor, so nothing is read twice; an exit is
// recorded after the last report.
type Proxy struct {
	Spec
	log    io.Writer
	epochs epochs.Reader // nil without a format
	reader *progressReader
	files  checkpoints
	leave  leaving
	client http.Client
	// watching ends by stop; reporting ends when nothing is left to report, or when late is closed.
	watching, reporting conc.WaitGroup
	stop                context.CancelFunc
	late                chan struct{}
	// end is sent to when the programs are to get SIGTERM.
	end chan struct{}

	mu      sync.Mutex
	more    *sync.Cond
	reports []report
	over    bool
}

// New starts reporting to log's job; it returns nil if p is nil.
func New(p *Spec, log io.Writer) *Proxy {
	if p == nil {
		return nil
	}
	made := &Proxy{
		Spec: *p, log: log, reader: newProgressReader(p), files: checkpoints{Sight: p.Sight, patterns: p.Checkpoints}, stop: func() {},
		client: http.Client{Timeout: reportTimeout, Transport: &http.Transport{}}, late: make(chan struct{}), end: make(chan struct{}, 1),
	}
	if p.Format != "" {
		var err error
		if made.epochs, err = epochs.New(p.Format, nil); err != nil { // a job of a newer version
			_, _ = fmt.Fprintf(log, "[switchyard: %v; no epochs are read]\n", err)
		}
	}
	made.files.begin()
	made.more = sync.NewCond(&made.mu)
	made.reporting.Go(made.run)
	return made
}

// Reads reports whether the proxy wants the output.
func (p *Proxy) Reads() bool { return p != nil && (p.epochs != nil || p.Pattern != "") }

// Ends returns the channel that says that the programs are to be ended.
func (p *Proxy) Ends() <-chan struct{} {
	if p == nil {
		return nil
	}
	return p.end
}

// Write takes a line of output.
func (p *Proxy) Write(line []byte) (int, error) {
	if p.epochs != nil {
		if e, ok := p.epochs.Line(string(line)); ok {
			p.addEpoch(e)
		}
	}
	p.reader.line(string(line), p.addProgress)
	return len(line), nil
}

func (p *Proxy) addEpoch(e epochs.Epoch) {
	if body, err := e.Report(); err == nil { // a retry would not help
		p.add(report{path: "epochs", what: fmt.Sprintf("epoch %d", e.Epoch), body: body})
	}
}

func (p *Proxy) addProgress(r progress.Report) {
	if body, err := r.Body(); err == nil {
		p.add(report{path: "progress", what: fmt.Sprintf("progress after %d epochs", r.EpochsDone), body: body})
	}
}

func (p *Proxy) addCheckpoint(c file) {
	body, err := json.Marshal(map[string]any{"path": c.path, "bytes": c.size, "found": c.at.UnixNano()})
	if err == nil {
		p.add(report{path: "checkpoints", what: "checkpoint " + c.path, body: body})
	}
}

func (p *Proxy) add(r report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reports = append(p.reports, r)
	p.more.Signal()
}

func (p *Proxy) waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.reports)
}

// next waits for a report; it returns false when no more will come.
func (p *Proxy) next() (report, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.reports) == 0 && !p.over {
		p.more.Wait()
	}
	if len(p.reports) == 0 {
		return report{}, false
	}
	return p.reports[0], true
}

// run sends one report after the other. What the agent will never take is skipped: the attempt is fenced off, or the
// report makes no sense.
func (p *Proxy) run() {
	for {
		r, found := p.next()
		if !found {
			return
		}
		for p.post(r) != nil {
			select {
			case <-p.late:
				return
			case <-time.After(reportDelay):
			}
		}
		p.mu.Lock()
		p.reports = p.reports[1:]
		p.mu.Unlock()
	}
}

// errAway says that the agent could not take a report now.
var errAway = errors.New("the job API is away")

func (p *Proxy) post(r report) error {
	answer, err := p.client.Post(p.Address+r.path, "application/json", bytes.NewReader(r.body))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	if answer.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("%w: %s", errAway, answer.Status)
	}
	return nil
}

// Close reports what is new at the end of the programs, well or not. What could not be reported in time is noted in the
// log.
func (p *Proxy) Close(well bool) {
	if p == nil {
		return
	}
	p.stop()
	p.watching.Wait()
	if p.epochs != nil {
		if e, ok := p.epochs.Close(); ok {
			p.addEpoch(e)
		}
	}
	p.reader.files(p.addProgress)
	if r, ok := p.reader.now(); ok {
		p.addProgress(r)
	}
	if r, ok := p.reader.last(); ok && well {
		p.addProgress(r)
	}
	if c, fresh := p.files.last(); fresh {
		p.addCheckpoint(c)
	}
	p.mu.Lock()
	p.over = true
	p.more.Signal()
	p.mu.Unlock()
	patience := time.AfterFunc(reportPatience, func() { close(p.late) })
	p.reporting.Wait()
	patience.Stop()
	if len(p.reports) > 0 {
		_, _ = fmt.Fprintf(p.log, "[switchyard: %s and what followed could not be reported: the job API did not answer]\n", p.reports[0].what)
	}
}
