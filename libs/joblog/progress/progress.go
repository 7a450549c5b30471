// Package progress reads how far a training is from what its program writes anyway: lines of output, rows of a CSV
// file, scalars of TensorBoard. It reads text and bytes, not files.
package progress

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Point is what one line, row or scalar says. Epoch and Step are -1 if it does not say.
type Point struct {
	// Epoch is the number of the running epoch as the program counts it, from 0 or from 1.
	Epoch int
	// Step counts the steps of the epoch if Of, their number, is known, else those of the whole training. Without
	// epochs, Of is the number of all steps.
	Step, Of int
	// Metrics are all other values, also those that are no number. "loss" is the training loss.
	Metrics map[string]float64
}

// Named makes a point of named values; false if none of them says how far the training is.
func Named(values map[string]float64) (Point, bool) {
	p := Point{Epoch: -1, Step: -1, Metrics: map[string]float64{}}
	for name, value := range values {
		switch {
		case name == "epoch" && counts(value):
			p.Epoch = int(value)
		case name == "step" && counts(value):
			p.Step = int(value)
		case (name == "of" || name == "steps") && counts(value):
			p.Of = int(value)
		case !slices.Contains([]string{"epoch", "step", "of", "steps", "epochs"}, name):
			p.Metrics[name] = value
		}
	}
	return p, p.Epoch >= 0 || p.Step >= 0
}

// counts reports whether a number can be one of epochs or steps.
func counts(x float64) bool { return x >= 0 && x < 1<<40 }

// Pattern reads points from lines. Its named groups are epoch, step, of (how many steps), and metrics such as loss.
type Pattern struct{ words *regexp.Regexp }

// ParsePattern parses a regular expression.
func ParsePattern(text string) (Pattern, error) {
	words, err := regexp.Compile(text)
	if err != nil {
		return Pattern{}, err
	}
	if names := words.SubexpNames(); !slices.Contains(names, "epoch") && !slices.Contains(names, "step") {
		return Pattern{}, fmt.Errorf("%q has neither a group (?P<epoch>..) nor a group (?P<step>..)", text)
	}
	return Pattern{words}, nil
}

// Line reads a line.
func (p Pattern) Line(text string) (Point, bool) {
	found := p.words.FindStringSubmatch(text)
	values := map[string]float64{}
	for i, name := range p.words.SubexpNames() {
		if i < len(found) && name != "" {
			if x, err := strconv.ParseFloat(found[i], 64); err == nil {
				values[name] = x
			}
		}
	}
	return Named(values)
}

// Names gives the names that a program uses for epoch, step and loss.
type Names map[string]string

// losses are the usual names of the training loss, the most telling first.
func losses() []string {
	return []string{"loss", "train_loss", "train/loss", "Loss/train", "loss/train", "train_loss_epoch", "train_loss_step", "epoch_loss"}
}

// Apply replaces a program's names by those of this package.
func (n Names) Apply(values map[string]float64) map[string]float64 {
	said := maps.Clone(values)
	for name, theirs := range n {
		if x, found := values[theirs]; found {
			delete(said, theirs)
			said[name] = x
		}
	}
	if _, found := said["loss"]; !found {
		for _, usual := range losses() {
			if x, found := said[usual]; found {
				delete(said, usual)
				said["loss"] = x
				break
			}
		}
	}
	return said
}

// Row reads a row of a CSV file with a header.
func (n Names) Row(header, row []string) (Point, bool) {
	values := map[string]float64{}
	for i, name := range header {
		if i < len(row) {
			if x, err := strconv.ParseFloat(strings.TrimSpace(row[i]), 64); err == nil {
				values[strings.TrimSpace(name)] = x
			}
		}
	}
	return Named(n.Apply(values))
}

// Report is how far a training is: a request to the job API.
type Report struct {
	EpochsDone int  `json:"epochs_done"`
	Step       *int `json:"step,omitempty"`
	// EpochStep and EpochSteps are the steps of the epoch, if the program counts them.
	EpochStep  *int `json:"epoch_step,omitempty"`
	EpochSteps int  `json:"epoch_steps,omitempty"`
	// Last is set if the program has ended: its last epoch ended at some time before.
	Last    bool               `json:"last,omitempty"`
	Loss    *float64           `json:"loss,omitempty"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// Body returns the report as the job API takes it.
func (r Report) Body() ([]byte, error) { return json.Marshal(r) }

// Tracker makes reports of points. An epoch has ended when the next one begins, or when the program ends well.
type Tracker struct {
	// FromZero is set once the program has said epoch 0: it counts from 0, else from 1.
	FromZero bool

	begun   bool
	current Point
}

// Add takes a point. It returns the end of the epoch before, if the point begins a new one.
func (t *Tracker) Add(p Point) (ended Report, ok bool) {
	if !t.begun {
		t.begun, t.current = true, Point{Epoch: -1, Step: -1}
	}
	t.FromZero = t.FromZero || p.Epoch == 0
	if p.Epoch > t.current.Epoch && t.current.Epoch >= 0 {
		ended, ok = t.end(p.Epoch-t.first()), true
		t.current.Metrics, t.current.Step = nil, -1
	}
	t.current.Epoch = max(p.Epoch, t.current.Epoch)
	if p.Step >= 0 {
		t.current.Step, t.current.Of = p.Step, p.Of
	}
	if len(p.Metrics) > 0 && t.current.Metrics == nil {
		t.current.Metrics = map[string]float64{}
	}
	for name, value := range p.Metrics {
		train.Note(t.current.Metrics, name, value)
	}
	return ended, ok
}

// Now returns how far the training is; false before the first point.
func (t *Tracker) Now() (Report, bool) {
	if !t.begun {
		return Report{}, false
	}
	r := t.end(max(t.current.Epoch-t.first(), 0))
	if c := t.current; c.Step >= 0 {
		total := c.Step
		if c.Of > 0 {
			total += r.EpochsDone * c.Of
			r.EpochStep, r.EpochSteps = &c.Step, c.Of
		}
		r.Step = &total
	}
	return r, true
}

// Close returns the last epoch of a program that ended well; false if it counts none.
func (t *Tracker) Close() (Report, bool) {
	if !t.begun || t.current.Epoch < 0 {
		return Report{}, false
	}
	r := t.end(t.current.Epoch - t.first() + 1)
	r.Last = true
	return r, true
}

// first returns the number of the first epoch.
func (t *Tracker) first() int {
	if t.FromZero {
		return 0
	}
	return 1
}

func (t *Tracker) end(epochs int) Report {
	r := Report{EpochsDone: epochs, Metrics: maps.Clone(t.current.Metrics)}
	if loss, found := r.Metrics["loss"]; found {
		r.Loss = &loss
		delete(r.Metrics, "loss")
	}
	return r
}
