// Package epochs reads the epochs of a program that does not call the job API from its output. It reads lines, not
// files.
package epochs

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Epoch is one epoch as reported in the output.
type Epoch struct {
	Epoch int `json:"epoch"`
	// Seconds is the time that it took; BigDL's includes the validation.
	Seconds float64 `json:"seconds"`
	// Batch is the number of records per iteration, Records the number of records in the data set; 0 if the output does
	// not have them.
	Batch      int `json:"batch"`
	Records    int `json:"records"`
	Iterations int `json:"iterations"`
	// Loss is the newest one of the training.
	Loss *float64 `json:"loss,omitempty"`
	// Metrics are the results of validation, such as accuracy, and of the training (train_accuracy).
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// Report returns the body that reports the epoch to the job API on the program's behalf.
func (e Epoch) Report() ([]byte, error) {
	return json.Marshal(map[string]any{
		"epochs_done": e.Epoch, "epoch_seconds": max(e.Seconds, 0), "steps": e.Iterations, "samples": e.Records, "loss": e.Loss, "metrics": e.Metrics, "overheard": true,
	})
}

// set records the newest value of a metric, or of the loss.
func (e *Epoch) set(name string, value float64) {
	if e.Metrics == nil {
		e.Metrics = map[string]float64{}
	}
	train.Note(e.Metrics, name, value)
	if name != "loss" {
		return
	}
	e.Loss = nil
	if loss, known := e.Metrics[name]; known {
		e.Loss = &loss
		delete(e.Metrics, name)
	}
	if len(e.Metrics) == 0 {
		e.Metrics = nil
	}
}

// Reader follows an output line by line, and ignores lines that it does not know. Its JSON is how far it has read.
type Reader interface {
	// Line reads the next line. It returns an epoch once it is complete: when the next epoch begins.
	Line(text string) (done Epoch, ok bool)
	// Close returns the last epoch, if it ended.
	Close() (last Epoch, ok bool)
}

// Formats are the values of log_format.
func Formats() []string { return []string{train.LogBigDL, train.LogMXNet} }

// New returns a reader of a format that goes on from what an earlier one had read: its JSON, or nil.
func New(format string, kept json.RawMessage) (Reader, error) {
	var r Reader
	switch format {
	case train.LogBigDL:
		r = newBigDL()
	case train.LogMXNet:
		r = newMXNet()
	default:
		return nil, fmt.Errorf("output of an unknown format %q", format)
	}
	if len(kept) > 0 {
		if err := json.Unmarshal(kept, r); err != nil {
			return nil, fmt.Errorf("go on reading %s output: %w", format, err)
		}
	}
	return r, nil
}

// whole converts a string of a few digits.
func whole(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}
