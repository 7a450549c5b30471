// Package jobapi is a client of the node agent's job API: it reports the progress of the training and asks whether to
// stop. The API helps but is never a condition: while it is away the training goes on, facts about epochs wait, and
// heartbeats are dropped.
package jobapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	callTimeout  = 2 * time.Second
	flushTimeout = 5 * time.Second // for all that waits, so that a slow server cannot hold the ring up
	firstBackOff = 500 * time.Millisecond
	lastBackOff  = 15 * time.Second
	endTime      = 10 * time.Second // a restarted scheduler is back by then
	endPause     = time.Second
	pendingLimit = 64
	answerLimit  = 64 << 10 // bytes
)

// Steps is a heartbeat.
type Steps struct {
	Step        uint64  `json:"step"`           // cumulative over the whole job
	Epoch       uint64  `json:"epoch"`          // the running one, from 0
	EpochStep   int     `json:"epoch_step"`     // steps of the running epoch so far
	EpochSteps  int     `json:"epoch_steps"`    // steps that the epoch has
	AnyStep     bool    `json:"stops_at_steps"` // it asks after steps whether to stop
	Steps       int     `json:"steps"`          // in this heartbeat
	StepSeconds float64 `json:"step_seconds"`
	WaitSeconds float64 `json:"wait_seconds"` // of StepSeconds, for the gradients of the others
	Samples     int     `json:"samples"`      // of all workers, in this heartbeat
	Rank        int     `json:"rank"`
	Loss        float64 `json:"loss"`
	GradSqr     float64 `json:"grad_sqr"`
	GradVar     float64 `json:"grad_var"`
	Batch
}

// Batch is how a step is done. In a report it is the batch used, in an answer the desired batch from then on.
type Batch struct {
	MicroBatch   int    `json:"micro_batch"`            // samples of a worker in one pass
	Accumulation int    `json:"accumulation,omitempty"` // passes of a worker in a step
	GlobalBatch  int    `json:"global_batch,omitempty"` // samples of all workers in a step
	Generation   uint64 `json:"generation"`             // of the desired batch; 0 without one
}

// Epoch reports an epoch that is done and whose checkpoint is written.
type Epoch struct {
	EpochsDone   uint64             `json:"epochs_done"`
	EpochSeconds float64            `json:"epoch_seconds"`
	Steps        int                `json:"steps"`
	Samples      int                `json:"samples"`
	Rank         int                `json:"rank"`
	Loss         float64            `json:"loss"`
	Metrics      map[string]float64 `json:"metrics"`
	GradSqr      float64            `json:"grad_sqr"`
	GradVar      float64            `json:"grad_var"`
	Batch
	MemoryBytes int64 `json:"gpu_memory_bytes,omitempty"` // the highest use of a device
}

// Checkpoint reports a checkpoint that is on disk.
type Checkpoint struct {
	EpochsDone uint64  `json:"epochs_done"`
	EpochStep  uint64  `json:"epoch_step,omitempty"` // steps of the epoch after them
	EpochSteps int     `json:"epoch_steps,omitempty"`
	Path       string  `json:"path"`
	Bytes      int     `json:"bytes"`
	Seconds    float64 `json:"seconds"`
}

// Outcome is how an attempt ended.
type Outcome string

// The outcomes of the API.
const (
	Finished Outcome = "finished"
	Stopped  Outcome = "stopped"
	Failed   Outcome = "failed"
)

// End is the last report of an attempt.
type End struct {
	Outcome    Outcome `json:"outcome"`
	EpochsDone uint64  `json:"epochs_done"`
	Message    string  `json:"message"`
}

type fact struct {
	kind string
	body any
	file string // where it is written down until it has arrived
}

// Client reports for one job. It is not safe for concurrent use. The zero Client sends nothing.
type Client struct {
	base    string
	http    *http.Client
	log     io.Writer
	pending []fact
	wanted  Batch
	stop    bool // the newest answer said that a stop is near
	backOff time.Duration
	retryAt time.Time
	notes   notes
}

// New returns a client of the API at base (http://host:port/attempt/token) for the job of this UUID. With an empty base
// it sends nothing. Complaints go to log. What has not arrived is written down in the folder unreported, unless that is
// empty.
func New(base, jobUUID, unreported string, log io.Writer) *Client {
	if base == "" {
		return &Client{}
	}
	return &Client{
		base: strings.TrimRight(base, "/") + "/v1/jobs/" + url.PathEscape(jobUUID) + "/",
		// Never by a proxy: the agent is on this host.
		http: &http.Client{Timeout: callTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 1}},
		log:  log, notes: notes{dir: unreported, prefix: "/v1/jobs/" + url.PathEscape(jobUUID) + "/"},
	}
}

// Wanted returns the newest desired batch; zero without one.
func (c *Client) Wanted() Batch { return c.wanted }

// receive takes a desired batch, and whether a stop is near, out of an answer that may say so.
func (c *Client) receive(answer []byte) {
	var said struct {
		Batch
		Stop bool `json:"stop"`
	}
	if json.Unmarshal(answer, &said) != nil {
		return
	}
	c.stop = said.Stop
	if said.MicroBatch > 0 {
		c.wanted = said.Batch
	}
}

// Steps sends a heartbeat, or drops it while the API is away.
func (c *Client) Steps(ctx context.Context, s Steps) {
	if c.base == "" || time.Now().Before(c.retryAt) {
		return
	}
	if c.flush(ctx) {
		c.post(ctx, fact{kind: "steps", body: s})
	}
}

// EpochEnded sends the checkpoint's fact and the epoch's, after those that still wait. It tries even if the API was
// away a moment ago.
func (c *Client) EpochEnded(ctx context.Context, saved Checkpoint, e Epoch) {
	if c.base == "" {
		return
	}
	c.pending = append(c.pending, c.notes.take("checkpoints", saved), c.notes.take("epochs", e))
	if extra := len(c.pending) - pendingLimit; extra > 0 {
		c.pending = c.pending[extra:]
	}
	c.flush(ctx)
}

// Saved sends the fact of a checkpoint within an epoch.
func (c *Client) Saved(ctx context.Context, saved Checkpoint) {
	if c.base == "" {
		return
	}
	c.pending = append(c.pending, c.notes.take("checkpoints", saved))
	c.flush(ctx)
}

// StopNear reports whether the newest answer said that StopRequested will be true.
func (c *Client) StopNear() bool { return c.stop }

// StopRequested asks whether the attempt should stop. While the API is away the answer is no.
func (c *Client) StopRequested(ctx context.Context) bool { return c.asks(ctx, "control") }

// StopRequestedAt is StopRequested after a step within an epoch, for all processes.
func (c *Client) StopRequestedAt(ctx context.Context, step uint64) bool {
	return c.asks(ctx, fmt.Sprintf("control?step=%d", step))
}

func (c *Client) asks(ctx context.Context, question string) bool {
	if c.base == "" || len(c.pending) > 0 {
		return false // it was away just now, at the epoch's end
	}
	var control struct {
		Stop bool `json:"stop"`
	}
	answer, err := c.do(ctx, http.MethodGet, question, nil)
	if err == nil {
		err = json.Unmarshal(answer, &control)
	}
	if err != nil {
		c.away("control", err)
		return false
	}
	c.receive(answer)
	return control.Stop
}

// End sends the last report, and tries for a while, because nothing comes after it.
func (c *Client) End(ctx context.Context, e End) {
	if c.base == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	last := c.notes.take("end", e)
	for !c.flush(ctx) || !c.post(ctx, last) {
		if last.file != "" || !sleep(ctx, endPause) {
			return // the scheduler looks there
		}
	}
	c.notes.drop(last)
}

// flush sends what waits, in order; it returns false if the API is away.
func (c *Client) flush(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	for len(c.pending) > 0 {
		if !c.post(ctx, c.pending[0]) {
			return false
		}
		c.notes.drop(c.pending[0])
		c.pending = c.pending[1:]
	}
	return true
}

// post sends one fact; it returns false if the fact should be sent again.
func (c *Client) post(ctx context.Context, f fact) bool {
	body, err := json.Marshal(f.body)
	var answer []byte
	if err == nil {
		answer, err = c.do(ctx, http.MethodPost, f.kind, body)
	}
	if refused, ok := errors.AsType[refusal](err); ok {
		// It would be refused again; keeping it would hold up everything after it.
		fmt.Fprintf(c.log, "job API refused %s: %v\n", f.kind, refused)
		return true
	}
	if err != nil {
		c.away(f.kind, err)
		return false
	}
	c.backOff, c.retryAt = 0, time.Time{}
	c.receive(answer)
	return true
}

// refusal is an answer that a repetition would not change.
type refusal string

func (r refusal) Error() string { return string(r) }

func (c *Client) do(ctx context.Context, method, kind string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+kind, bytes.NewReader(body))
	if err != nil {
		return nil, refusal(err.Error())
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, answerLimit))
	if err != nil {
		return nil, err
	}
	switch {
	case response.StatusCode < 300:
		return answer, nil
	case response.StatusCode >= 400 && response.StatusCode < 500 &&
		response.StatusCode != http.StatusTooManyRequests && response.StatusCode != http.StatusRequestTimeout:
		return nil, refusal(response.Status + " " + strings.TrimSpace(string(answer)))
	default:
		return nil, fmt.Errorf("answer %s", response.Status)
	}
}

// away records a failed call: one line, and a pause that doubles.
func (c *Client) away(kind string, err error) {
	c.backOff = min(max(2*c.backOff, firstBackOff), lastBackOff)
	c.retryAt = time.Now().Add(c.backOff)
	fmt.Fprintf(c.log, "job API did not take %s, training goes on: %v\n", kind, err)
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
