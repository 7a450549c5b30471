package epochs

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// bigdl reads the log of a BigDL program.
type bigdl struct {
	line, trained, finished, validated, saved *regexp.Regexp

	progress
}

// progress is how far a log was read.
type progress struct {
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

func newBigDL() *bigdl {
	const double = `[\d.]+(?:E-?\d+)?` // as the JVM writes it
	return &bigdl{
		line:      regexp.MustCompile(`^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) +INFO +\S+ - \[Epoch (\d{1,9}) \d+/(\d{1,9})\]\[Iteration (\d{1,9})\]\[Wall Clock ` + double + `s\] (.*)$`),
		trained:   regexp.MustCompile(`^Trained (\d{1,9}) records in .* Loss is ([^ ]+)\. `),
		finished:  regexp.MustCompile(`^Epoch finished\. Wall clock time is (` + double + `) ms`),
		saved:     regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +INFO +\S+ - \[Wall Clock ` + double + `s\] Save optimMethod `),
		validated: regexp.MustCompile(`^(Top1Accuracy|Top5Accuracy) is Accuracy\(.*accuracy: ([^ )]+)\)|^(Loss) is \(.*Average Loss: ([^ )]+)\)`),
	}
}

// Line implements Reader.
func (l *bigdl) Line(text string) (done Epoch, ok bool) {
	found := l.line.FindStringSubmatch(strings.TrimRight(text, " \r\n"))
	switch {
	case found == nil && l.saved.MatchString(text):
		return l.Close() // a checkpoint is written after the validation, so the epoch is complete
	case found == nil:
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

func (l *bigdl) read(words string, iteration int, at time.Time) {
	if m := l.trained.FindStringSubmatch(words); m != nil {
		l.Current.Batch = whole(m[1])
		if iteration > l.Iteration { // a line may appear twice
			l.Iteration, l.Current.Iterations = iteration, l.Current.Iterations+1
		}
		if loss, err := strconv.ParseFloat(m[2], 64); err == nil {
			l.Current.set("loss", loss)
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
	if value, err := strconv.ParseFloat(m[2]+m[4], 64); err == nil {
		names := map[string]string{"Top1Accuracy": "accuracy", "Top5Accuracy": "top5_accuracy", "Loss": "validation_loss"}
		l.Current.set(names[m[1]+m[3]], value)
		l.Validated = at
	}
}

// Close implements Reader.
func (l *bigdl) Close() (last Epoch, ok bool) {
	last, ok = l.Current, l.Ended
	l.Ended = false
	return last, ok
}

func finite(text string) (float64, bool) {
	x, err := strconv.ParseFloat(text, 64)
	return x, err == nil && !math.IsNaN(x) && !math.IsInf(x, 0)
}
