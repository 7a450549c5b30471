package jobapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Bounds of what training code may say. They are far beyond any training and keep later arithmetic safe.
const (
	maxBodyBytes  = 64 << 10
	maxCount      = int64(1) << 50
	maxRank       = 1 << 16
	maxSeconds    = 366 * 24 * 3600
	maxMetrics    = 64
	maxMetricName = 128
	maxPath       = 4096
	maxMessage    = 8 << 10
	// maxEpochLeap is how far ahead of what is known a number of finished epochs may be.
	maxEpochLeap = 1_000_000
)

// problem is one thing wrong with a body.
type problem struct {
	field string
	text  string
}

func (p problem) String() string {
	if p.field == "" {
		return p.text
	}
	return p.field + ": " + p.text
}

func describe(problems []problem) string {
	words := make([]string, len(problems))
	for i, p := range problems {
		words[i] = p.String()
	}
	return strings.Join(words, "; ")
}

// profile is KubeProfiler's record; its other fields (jobid, timestamp, nodelist, numgpu) say nothing new.
type profile struct {
	Iteration   *int64   `json:"iternum"`
	Rank        int64    `json:"rank"`
	MeanSeconds float64  `json:"meandur"`
	MemoryMiB   float64  `json:"gpumem"`
	EpochTime   *float64 `json:"epochDur"`
}

func (b profile) check() []problem {
	var c checks
	c.required("iternum", b.Iteration)
	c.rank(b.Rank)
	c.seconds("meandur", b.MeanSeconds)
	c.number("gpumem", b.MemoryMiB, float64(maxCount))
	if b.EpochTime != nil {
		c.seconds("epochDur", *b.EpochTime)
	}
	return c.problems
}

// doneBody is KubeProfiler's end of an epoch.
type doneBody struct {
	Done *int64 `json:"done"`
}

func (b doneBody) check() []problem {
	var c checks
	c.required("done", b.Done)
	return c.problems
}

// measures are what steps and epochs have in common. The estimates of gradients may be negative: an unbiased estimate of a square is.
type measures struct {
	Rank         int64              `json:"rank"`
	Steps        int64              `json:"steps"`
	Samples      int64              `json:"samples"`
	Loss         *float64           `json:"loss"`
	Metrics      map[string]float64 `json:"metrics"`
	GradSquared  *float64           `json:"grad_sqr"`
	GradVariance *float64           `json:"grad_var"`
	MemoryBytes  int64              `json:"gpu_memory_bytes"`
}

func (b measures) check(c *checks) {
	c.rank(b.Rank)
	c.count("steps", b.Steps)
	c.count("samples", b.Samples)
	c.count("gpu_memory_bytes", b.MemoryBytes)
	if len(b.Metrics) > maxMetrics {
		c.add("metrics", fmt.Sprintf("has %d entries, at most %d are taken", len(b.Metrics), maxMetrics))
	}
	for name := range b.Metrics {
		if name == "" || len(name) > maxMetricName {
			c.add("metrics", fmt.Sprintf("a name has %d bytes, want 1 to %d", len(name), maxMetricName))
			break
		}
	}
}

// stepsBody is a heartbeat.
type stepsBody struct {
	Step        *int64  `json:"step"`
	Epoch       int64   `json:"epoch"`
	StepSeconds float64 `json:"step_seconds"`
	WaitSeconds float64 `json:"wait_seconds"`
	// MicroBatch says that the code can change it, and Generation whose wish it follows.
	MicroBatch int64 `json:"micro_batch"`
	Generation int64 `json:"generation"`
	measures
}

func (b stepsBody) check() []problem {
	var c checks
	c.required("step", b.Step)
	c.count("epoch", b.Epoch)
	c.seconds("step_seconds", b.StepSeconds)
	c.seconds("wait_seconds", b.WaitSeconds)
	c.count("micro_batch", b.MicroBatch)
	c.count("generation", b.Generation)
	b.measures.check(&c)
	return c.problems
}

// epochBody is the end of an epoch.
type epochBody struct {
	EpochsDone   *int64  `json:"epochs_done"`
	EpochSeconds float64 `json:"epoch_seconds"`
	// Overheard says that somebody read this in the output of the code, which does not call itself.
	Overheard bool `json:"overheard"`
	measures
}

func (b epochBody) check() []problem {
	var c checks
	c.required("epochs_done", b.EpochsDone)
	c.seconds("epoch_seconds", b.EpochSeconds)
	b.measures.check(&c)
	return c.problems
}

// checkpointBody is a state that was saved.
type checkpointBody struct {
	EpochsDone *int64  `json:"epochs_done"`
	Path       string  `json:"path"`
	Bytes      int64   `json:"bytes"`
	Seconds    float64 `json:"seconds"`
}

func (b checkpointBody) check() []problem {
	var c checks
	c.required("epochs_done", b.EpochsDone)
	c.count("bytes", b.Bytes)
	c.seconds("seconds", b.Seconds)
	if b.Path == "" || len(b.Path) > maxPath || strings.ContainsRune(b.Path, 0) {
		c.add("path", fmt.Sprintf("want 1 to %d bytes without NUL", maxPath))
	}
	return c.problems
}

// The outcomes that training code may report of itself.
const (
	endFinished = "finished"
	endStopped  = "stopped"
	endFailed   = "failed"
)

// endBody is the last word of an attempt.
type endBody struct {
	Outcome    string `json:"outcome"`
	EpochsDone *int64 `json:"epochs_done"`
	Message    string `json:"message"`
}

func (b endBody) check() []problem {
	var c checks
	if !slices.Contains([]string{endFinished, endStopped, endFailed}, b.Outcome) {
		c.add("outcome", fmt.Sprintf("want finished, stopped or failed, got %.40q", b.Outcome))
	}
	if b.EpochsDone != nil {
		c.count("epochs_done", *b.EpochsDone)
	}
	if len(b.Message) > maxMessage {
		c.add("message", fmt.Sprintf("has %d bytes, at most %d are taken", len(b.Message), maxMessage))
	}
	return c.problems
}

// checks collects what is wrong.
type checks struct{ problems []problem }

func (c *checks) add(field, text string) { c.problems = append(c.problems, problem{field, text}) }

func (c *checks) required(field string, v *int64) {
	if v == nil {
		c.add(field, "is missing")
		return
	}
	c.count(field, *v)
}

func (c *checks) count(field string, v int64) {
	switch {
	case v < 0:
		c.add(field, fmt.Sprintf("want 0 or more, got %d", v))
	case v > maxCount:
		c.add(field, fmt.Sprintf("want at most %d, got %d", maxCount, v))
	}
}

func (c *checks) rank(v int64) {
	if v < 0 || v >= maxRank {
		c.add("rank", fmt.Sprintf("want 0 to %d, got %d", maxRank-1, v))
	}
}

func (c *checks) seconds(field string, v float64) { c.number(field, v, maxSeconds) }

func (c *checks) number(field string, v, most float64) {
	switch {
	case v < 0:
		c.add(field, fmt.Sprintf("want 0 or more, got %g", v))
	case v > most:
		c.add(field, fmt.Sprintf("want at most %g, got %g", most, v))
	}
}

// parse reads a body into a struct. Unknown fields are ignored, since newer libraries may say more; anything else must have the type that is
// wanted. JSON itself has no NaN and no infinities, and numbers that do not fit are refused.
func parse(data []byte, body any) []problem {
	err := json.Unmarshal(data, body)
	var wrongType *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrongType) && wrongType.Field == "":
		return []problem{{"", "want a JSON object, got " + wrongType.Value}}
	case errors.As(err, &wrongType):
		return []problem{{fieldName(wrongType.Field), fmt.Sprintf("want %s, got %s", wanted(wrongType), wrongType.Value)}}
	default:
		return []problem{{"", "want a JSON object: " + err.Error()}}
	}
}

// fieldName drops the names of embedded structs, which are no part of the wire.
func fieldName(path string) string { return strings.TrimPrefix(path, "measures.") }

func wanted(e *json.UnmarshalTypeError) string {
	switch e.Type.Kind().String() {
	case "int64":
		return "a whole number"
	case "float64":
		return "a finite number"
	case "string":
		return "text"
	default:
		return "an object"
	}
}
