package local

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/joblog/bigdl"
)

// EpochTarget says that a program reports its epochs in its output, in which format, and the address of the job API
// that receives them.
type EpochTarget struct {
	Format  string `json:"format"`
	Address string `json:"epochs"`
}

// reportPatience is how long the end of an attempt waits for an agent that is unreachable. reportDelay is the delay
// before the next try.
const (
	reportPatience = 30 * time.Second
	reportDelay    = 500 * time.Millisecond
	reportTimeout  = 5 * time.Second
)

// epochReporter reads the output of a program and reports its epochs to the job API, in order, as the program itself
// would. It lives as long as the supervisor, so nothing is read twice; an exit is recorded after the last epoch was
// reported.
type epochReporter struct {
	address   string
	log       *bigdl.Log
	client    http.Client
	reporting conc.WaitGroup
	// late is closed when the end waits no longer.
	late chan struct{}

	mu     sync.Mutex
	more   *sync.Cond
	epochs []bigdl.Epoch
	over   bool
}

// newEpochReporter starts reporting; it returns nil if t is nil.
func newEpochReporter(t *EpochTarget) *epochReporter {
	if t == nil {
		return nil
	}
	r := &epochReporter{address: t.Address, log: bigdl.New(bigdl.Progress{}), client: http.Client{Timeout: reportTimeout, Transport: &http.Transport{}}, late: make(chan struct{})}
	r.more = sync.NewCond(&r.mu)
	r.reporting.Go(r.run)
	return r
}

// Write takes a line of output.
func (r *epochReporter) Write(line []byte) (int, error) {
	if e, ok := r.log.Line(string(line)); ok {
		r.add(e)
	}
	return len(line), nil
}

func (r *epochReporter) add(e bigdl.Epoch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epochs = append(r.epochs, e)
	r.more.Signal()
}

// next waits for an epoch; it returns false when no more epochs will come.
func (r *epochReporter) next() (bigdl.Epoch, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.epochs) == 0 && !r.over {
		r.more.Wait()
	}
	if len(r.epochs) == 0 {
		return bigdl.Epoch{}, false
	}
	return r.epochs[0], true
}

// run reports one epoch after the other. An epoch that the agent will never take is skipped: the attempt is fenced
// off, or the number makes no sense.
func (r *epochReporter) run() {
	for {
		e, found := r.next()
		if !found {
			return
		}
		for r.post(e) != nil {
			select {
			case <-r.late:
				return
			case <-time.After(reportDelay):
			}
		}
		r.mu.Lock()
		r.epochs = r.epochs[1:]
		r.mu.Unlock()
	}
}

// errAway says that the agent could not take an epoch now.
var errAway = errors.New("the job API is away")

func (r *epochReporter) post(e bigdl.Epoch) error {
	body, err := e.Report()
	if err != nil {
		return nil // a retry would not help
	}
	answer, err := r.client.Post(r.address, "application/json", bytes.NewReader(body))
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

// close reports the last epoch. What could not be reported in time is noted in the log.
func (r *epochReporter) close(log io.Writer) {
	if r == nil {
		return
	}
	if e, ok := r.log.Close(); ok {
		r.add(e)
	}
	r.mu.Lock()
	r.over = true
	r.more.Signal()
	r.mu.Unlock()
	patience := time.AfterFunc(reportPatience, func() { close(r.late) })
	r.reporting.Wait()
	patience.Stop()
	if len(r.epochs) > 0 {
		_, _ = fmt.Fprintf(log, "[switchyard: epoch %d and later ones could not be reported: the job API did not answer]\n", r.epochs[0].Epoch)
	}
}
