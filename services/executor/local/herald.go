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

// Told says that a program tells of its epochs in its output, in which format, and where they are passed on to: the job API of its attempt.
type Told struct {
	Format string `json:"format"`
	Epochs string `json:"epochs"`
}

// heraldPatience is how long the end of an attempt waits for an agent that is away, heraldDelay how long after a failure the agent is tried again.
const (
	heraldPatience = 30 * time.Second
	heraldDelay    = 500 * time.Millisecond
	heraldTimeout  = 5 * time.Second
)

// herald reads the output of a program and tells the job API of its epochs, in order, as the program itself would. It lives as long as the supervisor, so nothing is
// read twice; an exit is written down after the last epoch was told.
type herald struct {
	address string
	log     *bigdl.Log
	client  http.Client
	telling conc.WaitGroup
	// late is closed when the end waits no longer.
	late chan struct{}

	mu     sync.Mutex
	more   *sync.Cond
	epochs []bigdl.Epoch
	over   bool
}

// newHerald begins to tell; of nothing where t is nil.
func newHerald(t *Told) *herald {
	if t == nil {
		return nil
	}
	h := &herald{address: t.Epochs, log: bigdl.New(bigdl.Progress{}), client: http.Client{Timeout: heraldTimeout, Transport: &http.Transport{}}, late: make(chan struct{})}
	h.more = sync.NewCond(&h.mu)
	h.telling.Go(h.tell)
	return h
}

// Write takes a line of output.
func (h *herald) Write(line []byte) (int, error) {
	if e, ok := h.log.Line(string(line)); ok {
		h.add(e)
	}
	return len(line), nil
}

func (h *herald) add(e bigdl.Epoch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.epochs = append(h.epochs, e)
	h.more.Signal()
}

// next waits for an epoch; false when there will be none any more.
func (h *herald) next() (bigdl.Epoch, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.epochs) == 0 && !h.over {
		h.more.Wait()
	}
	if len(h.epochs) == 0 {
		return bigdl.Epoch{}, false
	}
	return h.epochs[0], true
}

// tell passes on one epoch after the other. One that the agent will never take is left out: the attempt is fenced off, or the number makes no sense.
func (h *herald) tell() {
	for {
		e, found := h.next()
		if !found {
			return
		}
		for h.post(e) != nil {
			select {
			case <-h.late:
				return
			case <-time.After(heraldDelay):
			}
		}
		h.mu.Lock()
		h.epochs = h.epochs[1:]
		h.mu.Unlock()
	}
}

// errAway says that the agent could not take an epoch now.
var errAway = errors.New("the job API is away")

func (h *herald) post(e bigdl.Epoch) error {
	body, err := e.Report()
	if err != nil {
		return nil // no repetition makes it good
	}
	answer, err := h.client.Post(h.address, "application/json", bytes.NewReader(body))
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

// close tells of the last epoch. What could not be told in time is noted in the log.
func (h *herald) close(log io.Writer) {
	if h == nil {
		return
	}
	if e, ok := h.log.Close(); ok {
		h.add(e)
	}
	h.mu.Lock()
	h.over = true
	h.more.Signal()
	h.mu.Unlock()
	patience := time.AfterFunc(heraldPatience, func() { close(h.late) })
	h.telling.Wait()
	patience.Stop()
	if len(h.epochs) > 0 {
		_, _ = fmt.Fprintf(log, "[switchyard: epoch %d and what followed could not be told: the job API did not answer]\n", h.epochs[0].Epoch)
	}
}
