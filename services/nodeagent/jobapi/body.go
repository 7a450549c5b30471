package jobapi

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/strict"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Bounds on what training code may report. They are far beyond any training and keep later arithmetic safe.
const (
	maxBodyBytes  = 64 << 10
	maxCount      = int64(1) << 50
	maxRank       = 1 << 16
	maxSeconds    = 366 * 24 * 3600
	maxMetrics    = 64
	maxMetricName = 128
	maxPath       = 4096
	maxMessage    = 8 << 10
	// maxEpochLeap is how far a number of finished epochs may be ahead of the known number.
	maxEpochLeap = 1_000_000
)

// describe joins problems in one line. Bodies of training code have one line themselves, so a field says where the
// problem is.
func describe(problems strict.Problems) string {
	words := make([]string, len(problems))
	for i, p := range problems {
		if p.Field != "" {
			p.Line = 0
		}
		words[i] = p.String()
	}
	return strings.Join(words, "; ")
}

// profile is KubeProfiler's record; its other fields (jobid, timestamp, nodelist, numgpu) add nothing.
type profile struct {
	Iteration   *int64   `json:"iternum"`
	Rank        int64    `json:"rank"`
	MeanSeconds float64  `json:"meandur"`
	MemoryMiB   float64  `json:"gpumem"`
	EpochTime   *float64 `json:"epochDur"`
}

func (b profile) check() strict.Problems {
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

func (b doneBody) check() strict.Problems {
	var c checks
	c.required("done", b.Done)
	return c.problems
}

// measures are the fields that steps and epochs share. The estimates of gradients may be negative: an unbiased
// estimate of a square can be.
type measures struct {
	Rank         int64              `json:"rank"`
	Steps        int64              `json:"steps"`
	Samples      int64              `json:"samples"`
	Loss         *float64           `json:"loss"`
	Metrics      map[string]float64 `json:"metrics"`
	GradSquared  *float64           `json:"grad_sqr"`
	GradVariance *float64           `json:"grad_var"`
	// GlobalBatch is the number of samples of a step on all devices, in Accumulation passes of at most MicroBatch on each.
	GlobalBatch  int64 `json:"global_batch"`
	MicroBatch   int64 `json:"micro_batch"`
	Accumulation int64 `json:"accumulation"`
	MemoryBytes  int64 `json:"gpu_memory_bytes"`
}

func (b measures) check(c *checks) {
	c.rank(b.Rank)
	c.count("steps", b.Steps)
	c.count("samples", b.Samples)
	c.count("gpu_memory_bytes", b.MemoryBytes)
	c.count("global_batch", b.GlobalBatch)
	c.count("micro_batch", b.MicroBatch)
	c.count("accumulation", b.Accumulation)
}

// taken removes the metrics of a body that are not kept. A program that reports one for each layer has more than are
// kept: those with the shortest names are usually of the whole model. Its epochs count without the others.
func taken(metrics map[string]float64) map[string]float64 {
	maps.DeleteFunc(metrics, func(name string, _ float64) bool { return name == "" || len(name) > maxMetricName })
	if len(metrics) <= maxMetrics {
		return metrics
	}
	length := func(name string) int { return len(strings.TrimPrefix(name, train.Nonfinite)) }
	names := slices.SortedFunc(maps.Keys(metrics), func(x, y string) int { return cmp.Or(cmp.Compare(length(x), length(y)), cmp.Compare(x, y)) })
	for _, name := range names[maxMetrics:] {
		delete(metrics, name)
	}
	return metrics
}

// run returns the batch that the code runs with, if it says so.
func (b measures) run() train.Batch {
	if b.GlobalBatch == 0 || b.MicroBatch == 0 {
		return train.Batch{}
	}
	return train.Batch{Samples: int(b.GlobalBatch), LocalBatch: int(b.MicroBatch), Accumulation: int(max(b.Accumulation, 1)) - 1}
}

// stepsBody is a heartbeat.
type stepsBody struct {
	Step  *int64 `json:"step"`
	Epoch int64  `json:"epoch"`
	// EpochStep counts the steps of the epoch so far, EpochSteps is how many it has.
	EpochStep  *int64 `json:"epoch_step"`
	EpochSteps int64  `json:"epoch_steps"`
	// AnyStep is set by code that can stop after any step.
	AnyStep     bool    `json:"stops_at_steps"`
	StepSeconds float64 `json:"step_seconds"`
	WaitSeconds float64 `json:"wait_seconds"`
	// Generation is that of the batch it follows.
	Generation int64 `json:"generation"`
	measures
}

func (b stepsBody) check() strict.Problems {
	var c checks
	c.required("step", b.Step)
	c.count("epoch", b.Epoch)
	if b.EpochStep != nil {
		c.count("epoch_step", *b.EpochStep)
	}
	c.count("epoch_steps", b.EpochSteps)
	c.seconds("step_seconds", b.StepSeconds)
	c.seconds("wait_seconds", b.WaitSeconds)
	b.measures.check(&c)
	c.count("generation", b.Generation)
	return c.problems
}

func (b stepsBody) progress() stepped {
	return stepped{
		Step: int(*b.Step), Steps: int(b.Steps), Epoch: int(b.Epoch), EpochStep: b.EpochStep, EpochSteps: int(b.EpochSteps), Seconds: b.StepSeconds,
	}
}

func deref(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// epochBody is the end of an epoch.
type epochBody struct {
	EpochsDone   *int64  `json:"epochs_done"`
	EpochSeconds float64 `json:"epoch_seconds"`
	// Overheard is set if another process read this in the output of the code, which does not call itself.
	Overheard bool `json:"overheard"`
	// Generation is that of the batch it followed.
	Generation int64 `json:"generation"`
	measures
}

// ignored reports whether the code ran with a batch of its own instead of the planned one.
func (b epochBody) ignored(planned train.Batch, devices int) bool {
	ran := b.run()
	return planned.LocalBatch > 0 && (ran.LocalBatch == 0 || b.Generation == 0 && ran.Global(devices) != planned.Global(devices))
}

func (b epochBody) check() strict.Problems {
	var c checks
	c.required("epochs_done", b.EpochsDone)
	c.seconds("epoch_seconds", b.EpochSeconds)
	c.count("generation", b.Generation)
	b.measures.check(&c)
	return c.problems
}

// checkpointBody is a saved state.
type checkpointBody struct {
	EpochsDone *int64 `json:"epochs_done"`
	// EpochStep counts the steps of the epoch after them in it.
	EpochStep  int64   `json:"epoch_step"`
	EpochSteps int64   `json:"epoch_steps"`
	Path       string  `json:"path"`
	Bytes      int64   `json:"bytes"`
	Seconds    float64 `json:"seconds"`
	// Found is the time of the file, in nanoseconds since 1970, if another process found it: the code does not call
	// itself, and nobody knows how many epochs are in it.
	Found int64 `json:"found"`
}

func (b checkpointBody) check() strict.Problems {
	var c checks
	if b.Found == 0 {
		c.required("epochs_done", b.EpochsDone)
	}
	c.count("epoch_step", b.EpochStep)
	c.count("epoch_steps", b.EpochSteps)
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

// endBody is the final report of an attempt.
type endBody struct {
	Outcome    string `json:"outcome"`
	EpochsDone *int64 `json:"epochs_done"`
	Message    string `json:"message"`
}

func (b endBody) check() strict.Problems {
	var c checks
	if !slices.Contains([]string{endFinished, endStopped, endFailed}, b.Outcome) {
		c.add("outcome", fmt.Sprintf("want finished, stopped or failed, found %.40q", b.Outcome))
	}
	if b.EpochsDone != nil {
		c.count("epochs_done", *b.EpochsDone)
	}
	if len(b.Message) > maxMessage {
		c.add("message", fmt.Sprintf("has %d bytes, at most %d are taken", len(b.Message), maxMessage))
	}
	return c.problems
}

// checks collects the invalid values of a body.
type checks struct{ problems strict.Problems }

func (c *checks) add(field, text string) {
	c.problems = append(c.problems, strict.Problem{Code: strict.CodeValue, Field: field, Message: text})
}

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
		c.add(field, fmt.Sprintf("want 0 or more, found %d", v))
	case v > maxCount:
		c.add(field, fmt.Sprintf("want at most %d, found %d", maxCount, v))
	}
}

func (c *checks) rank(v int64) {
	if v < 0 || v >= maxRank {
		c.add("rank", fmt.Sprintf("want 0 to %d, found %d", maxRank-1, v))
	}
}

func (c *checks) seconds(field string, v float64) { c.number(field, v, maxSeconds) }

func (c *checks) number(field string, v, most float64) {
	switch {
	case v < 0:
		c.add(field, fmt.Sprintf("want 0 or more, found %g", v))
	case v > most:
		c.add(field, fmt.Sprintf("want at most %g, found %g", most, v))
	}
}

// parseAndCheck decodes a body into a struct and returns its problems. Unknown fields are ignored, because newer
// libraries may send more; everything else is decoded strictly. JSON has no NaN and no infinities, and numbers out of
// range are refused.
func parseAndCheck(data []byte, body any, check func() strict.Problems) strict.Problems {
	r := strict.New(strict.Options{MaxBytes: maxBodyBytes, Tolerant: true})
	if root, ok := r.JSON(data); ok {
		r.Bind(root, "", body)
	}
	if problems := r.Problems(); problems != nil {
		return problems
	}
	return check()
}
