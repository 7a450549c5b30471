package epochs

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mxnet reads what MXNet's Module.fit writes by logging, whatever the form of the lines' beginning:
//
//	Epoch[0] Batch [20] Speed: 1522.65 samples/sec accuracy=0.253348
//	Epoch[0] Train-accuracy=0.421875
//	Epoch[0] Time cost=32.806
//	Epoch[0] Validation-accuracy=0.484375
//
// Older versions name the metrics of a batch Train-accuracy. The loss is a metric that the training has to be asked
// for: --loss ce of the examples for image classification.
type mxnet struct {
	line, value *regexp.Regexp

	// Current is the running epoch, from 1; Ended says that only its validation is still to come.
	Current Epoch `json:"current"`
	Ended   bool  `json:"ended,omitempty"`
}

func newMXNet() *mxnet {
	return &mxnet{
		line:  regexp.MustCompile(`\bEpoch\[(\d{1,9})\] (.*)$`),
		value: regexp.MustCompile(`(\S+)=(\S+)`),
	}
}

// Line implements Reader.
func (l *mxnet) Line(text string) (done Epoch, ok bool) {
	found := l.line.FindStringSubmatch(strings.TrimRight(text, " \r\n"))
	if found == nil {
		return Epoch{}, false
	}
	if epoch := whole(found[1]) + 1; epoch != l.Current.Epoch {
		done, ok = l.Close()
		l.Current = Epoch{Epoch: epoch}
	}
	l.read(found[2])
	return done, ok
}

func (l *mxnet) read(words string) {
	seconds, ends := strings.CutPrefix(words, "Time cost=")
	if ends {
		if s, ok := finite(seconds); ok {
			l.Current.Seconds, l.Ended = s, true
		}
		return
	}
	of, prefix := words, ""
	validates := false
	switch {
	case strings.HasPrefix(words, "Batch"):
		prefix = "train_"
	case strings.HasPrefix(words, "Train-"):
		of, prefix = strings.TrimPrefix(words, "Train-"), "train_"
	case strings.HasPrefix(words, "Validation-"):
		of, validates = strings.TrimPrefix(words, "Validation-"), true
	default:
		return
	}
	for _, m := range l.value.FindAllStringSubmatch(of, -1) {
		value, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			continue
		}
		switch name := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(m[1], "Train-")), "-", "_"); {
		case !isLoss(name):
			l.Current.set(prefix+name, value)
		case validates:
			l.Current.set("validation_loss", value)
		default:
			l.Current.set("loss", value)
		}
	}
}

// isLoss reports whether a metric of MXNet is a mean loss.
func isLoss(metric string) bool {
	return slices.Contains([]string{"cross_entropy", "crossentropy", "nll_loss", "loss"}, metric)
}

// Close implements Reader.
func (l *mxnet) Close() (last Epoch, ok bool) {
	last, ok = l.Current, l.Ended
	l.Ended = false
	return last, ok
}
