// Package bigdl reads the epochs of a BigDL program from its log. It reads lines, not files.
package bigdl

import (
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Epoch is one epoch as reported in the log.
type Epoch struct {
	Epoch int `json:"epoch"`
	// Seconds is the time since the end of the epoch before, including its validation.
	Seconds float64 `json:"seconds"`
	// Batch is the number of records per iteration, Records the number of records in the data set.
	Batch      int `json:"batch"`
	Records    int `json:"records"`
	Iterations int `json:"iterations"`
	// Loss is that of the last iteration that had one.
	Loss *float64 `json:"loss,omitempty"`
	// Metrics are the results of validation: accuracy (Top1Accuracy), top5_accuracy, validation_loss.
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// Report returns the body that reports the epoch to the job API on the program's behalf.
func (e Epoch) Report() ([]byte, error) {
	return json.Marshal(map[string]any{
		"epochs_done": e.Epoch, "epoch_seconds": max(e.Seconds, 0), "steps": e.Iterations, "samples": e.Records, "loss": e.Loss, "metrics": e.Metrics, "overheard": true,
	})
}

// Log follows a log line by line. It ignores lines it does not know.
type Log struct {
	line, trained, finished, validated *regexp.Regexp

	Progress
}

// Progress is how far a log was read. A Log that starts from it continues there.
type Progress struct {
	// Started is the time of the first line of the first epoch, and Validated the end of the newest validation. The log
	// does not give its time zone; the times are stored as UTC.
	Started   time.Time `json:"started,omitzero"`
	Validated time.Time `json:"validated,omitzero"`
	// Current is the running epoch and Iteration its newest one; Ended says that only its validation is still to come.
	Current   Epoch `json:"current"`
	Iteration int   `json:"iteration"`
	Ended     bool  `json:"ended,omitempty"`
	// ClockSeconds is the time from the beginning of the training to the end of the last epoch.
	ClockSeconds float64 `json:"clock_seconds"`
}

// New returns a Log that starts, or continues, from a progress.
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

// Line reads the next line. It returns an epoch once it is complete: when the next epoch begins.
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
		if iteration > l.Iteration { // a line may appear twice
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

// Close returns the last epoch, if it ended.
func (l *Log) Close() (last Epoch, ok bool) {
	last, ok = l.Current, l.Ended
	l.Ended = false
	return last, ok
}

// whole converts a string of a few digits.
func whole(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}

func finite(text string) (float64, bool) {
	x, err := strconv.ParseFloat(text, 64)
	return x, err == nil && !math.IsNaN(x) && !math.IsInf(x, 0)
}
