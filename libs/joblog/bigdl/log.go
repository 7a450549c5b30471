// Package bigdl reads what a BigDL program tells of its epochs in its log. It reads lines, not files.
package bigdl

import (
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Epoch is one as the log tells it.
type Epoch struct {
	Epoch int `json:"epoch"`
	// Seconds are from the end of the epoch before, its validation included.
	Seconds float64 `json:"seconds"`
	// Batch is how many records an iteration trained, Records how many the data set has.
	Batch      int `json:"batch"`
	Records    int `json:"records"`
	Iterations int `json:"iterations"`
	// Loss is that of the last iteration that had one.
	Loss *float64 `json:"loss,omitempty"`
	// Metrics are what validation found: accuracy (Top1Accuracy), top5_accuracy, validation_loss.
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// Report is the body with which the job API is told of the epoch, by somebody who is not the program.
func (e Epoch) Report() ([]byte, error) {
	return json.Marshal(map[string]any{
		"epochs_done": e.Epoch, "epoch_seconds": max(e.Seconds, 0), "steps": e.Iterations, "samples": e.Records, "loss": e.Loss, "metrics": e.Metrics, "overheard": true,
	})
}

// Log follows a log line by line. Lines that it does not know say nothing.
type Log struct {
	line, trained, finished, validated *regexp.Regexp

	Progress
}

// Progress is how far a log was read. A log that is begun with it goes on there.
type Progress struct {
	// Started is when the first epoch told of itself and Validated when the newest validation ended, by a clock whose time zone the log does not tell; they
	// are given as UTC.
	Started   time.Time `json:"started,omitzero"`
	Validated time.Time `json:"validated,omitzero"`
	// Current is the epoch under way and Iteration its newest one; Ended says that nothing but its validation is to come.
	Current   Epoch `json:"current"`
	Iteration int   `json:"iteration"`
	Ended     bool  `json:"ended,omitempty"`
	// ClockSeconds is when the last epoch ended, since the training began.
	ClockSeconds float64 `json:"clock_seconds"`
}

// New begins a log, or goes on with one.
func New(from Progress) *Log {
	const double = `[\d.]+(?:E-?\d+)?` // as the JVM writes it
	return &Log{
		Progress:  from,
		line:      regexp.MustCompile(`^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) +INFO +\S+ - \[Epoch (\d{1,9}) \d+/(\d{1,9})\]\[Iteration (\d{1,9})\]\[Wall Clock ` + double + `s\] (.*)$`),
		trained:   regexp.MustCompile(`^Trained (\d{1,9}) records in .* Loss is ([^ ]+)\. `),
		finished:  regexp.MustCompile(`^Epoch finished\. Wall clock time is (` + double + `) ms`),
		validated: regexp.MustCompile(`^(Top1Accuracy|Top5Accuracy) is Accuracy\(.*accuracy: ([^ )]+)\)|^(Loss) is \(.*Average Loss: ([^ )]+)\)`),
	}
}

// Line reads the next line. It gives an epoch once no more is to come of it: when the next one tells of itself.
func (l *Log) Line(text string) (done Epoch, ok bool) {
	found := l.line.FindStringSubmatch(strings.TrimRight(text, " \r\n"))
	if found == nil {
		return Epoch{}, false
	}
	at, err := time.Parse(time.DateTime, found[1])
	if err != nil {
		return Epoch{}, false
	}
	epoch, records, iteration := whole(found[2]), whole(found[3]), whole(found[4])
	if l.Started.IsZero() {
		l.Started = at
	}
	if epoch != l.Current.Epoch {
		done, ok = l.Close()
		l.Current, l.Iteration = Epoch{Epoch: epoch, Records: records}, 0
	}
	l.read(found[5]+" ", iteration, at)
	return done, ok
}

func (l *Log) read(words string, iteration int, at time.Time) {
	if m := l.trained.FindStringSubmatch(words); m != nil {
		l.Current.Batch = whole(m[1])
		if iteration > l.Iteration { // a line may be there twice
			l.Iteration, l.Current.Iterations = iteration, l.Current.Iterations+1
		}
		if loss, ok := finite(m[2]); ok {
			l.Current.Loss = &loss
		}
		return
	}
	if m := l.finished.FindStringSubmatch(words); m != nil {
		if ms, ok := finite(m[1]); ok {
			l.Current.Seconds, l.ClockSeconds, l.Ended = ms/1000-l.ClockSeconds, ms/1000, true
		}
		return
	}
	m := l.validated.FindStringSubmatch(words)
	if m == nil {
		return
	}
	if value, ok := finite(m[2] + m[4]); ok {
		if l.Current.Metrics == nil {
			l.Current.Metrics = map[string]float64{}
		}
		names := map[string]string{"Top1Accuracy": "accuracy", "Top5Accuracy": "top5_accuracy", "Loss": "validation_loss"}
		l.Current.Metrics[names[m[1]+m[3]]] = value
		l.Validated = at
	}
}

// Close gives the last epoch, if it ended.
func (l *Log) Close() (last Epoch, ok bool) {
	last, ok = l.Current, l.Ended
	l.Ended = false
	return last, ok
}

// whole reads digits that are known to be few.
func whole(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}

func finite(text string) (float64, bool) {
	x, err := strconv.ParseFloat(text, 64)
	return x, err == nil && !math.IsNaN(x) && !math.IsInf(x, 0)
}
