// Package bigdl reads what a BigDL program tells of its epochs in its log. It reads lines, not files.
package bigdl

import (
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

// Log follows a log line by line. Lines that it does not know say nothing.
type Log struct {
	line, trained, finished, validated *regexp.Regexp

	// Started is when the first epoch told of itself and Validated when the newest validation ended, by a clock whose time zone the log does not tell; they
	// are given as UTC.
	Started, Validated time.Time

	epoch Epoch   // the current one
	clock float64 // when the epoch before ended, in seconds
	ended bool
	iters map[int]bool
}

// New begins a log.
func New() *Log {
	const double = `[\d.]+(?:E-?\d+)?` // as the JVM writes it
	return &Log{
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
	if epoch != l.epoch.Epoch {
		done, ok = l.Close()
		l.epoch, l.ended, l.iters = Epoch{Epoch: epoch, Records: records}, false, map[int]bool{}
	}
	l.read(found[5]+" ", iteration, at)
	return done, ok
}

func (l *Log) read(words string, iteration int, at time.Time) {
	if m := l.trained.FindStringSubmatch(words); m != nil {
		l.iters[iteration] = true
		l.epoch.Batch, l.epoch.Iterations = whole(m[1]), len(l.iters)
		if loss, ok := finite(m[2]); ok {
			l.epoch.Loss = &loss
		}
		return
	}
	if m := l.finished.FindStringSubmatch(words); m != nil {
		if ms, ok := finite(m[1]); ok {
			l.epoch.Seconds, l.clock, l.ended = ms/1000-l.clock, ms/1000, true
		}
		return
	}
	m := l.validated.FindStringSubmatch(words)
	if m == nil {
		return
	}
	if value, ok := finite(m[2] + m[4]); ok {
		if l.epoch.Metrics == nil {
			l.epoch.Metrics = map[string]float64{}
		}
		names := map[string]string{"Top1Accuracy": "accuracy", "Top5Accuracy": "top5_accuracy", "Loss": "validation_loss"}
		l.epoch.Metrics[names[m[1]+m[3]]] = value
		l.Validated = at
	}
}

// Close gives the last epoch, if it ended.
func (l *Log) Close() (last Epoch, ok bool) {
	last, ok = l.epoch, l.ended
	l.ended = false
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
