package sim

import (
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Workload is a sequence of arrivals.
type Workload struct {
	Name string
	Jobs []Arrival
}

// Arrival is a job of a workload.
type Arrival struct {
	Name    train.JobID
	Seconds float64
	Source  Source
	// Kind is the same for jobs that take equally long alone (default: the name).
	Kind string
	// Background says that the run may end before the job does.
	Background bool
}

// Source knows how the training of a job really goes: a recording of a live cluster (Recorded) or a published trace.
type Source interface {
	// Start returns the training for one run.
	Start() (Training, error)
}

// Training is the truth about a job in one run.
type Training interface {
	// Spec is what its user submitted, the priority included.
	Spec() train.Spec
	// Epochs is their number. End is the progress at which an epoch (from 1) ends.
	Epochs() int
	End(epoch int) float64
	// StartSeconds is the price of each start.
	StartSeconds() float64
	// Goodput is the progress per second on what the job holds.
	Goodput(h Held) float64
	// Lasts returns how long the rest of an epoch takes that is computed to take some seconds.
	Lasts(seconds float64) float64
	// Adjust follows a start or a stretch of training: it may set the batch for what the job holds now.
	Adjust(h Held)
	// Opaque says that its code reports nothing and cannot be asked to leave.
	Opaque() bool
	// AnyStep says that its code can save its state and leave within an epoch, at a heartbeat.
	AnyStep() bool
	// BeatSteps is how many steps there are between two heartbeats.
	BeatSteps(h Held) int
	// Report is the heartbeat of a step; no step time: the code reports epochs only. Ended is what it reports of the
	// epoch that has just ended.
	Report(h Held) event.Stepped
	Ended(h Held) event.EpochEnded
	// AloneSeconds is how long the job takes by itself on a number of devices, its one start included.
	AloneSeconds(nodes []train.Node, devices int) float64
}

// Held is what a job holds, and how far it has come.
type Held struct {
	// Shape is the number of devices on each node, in the order of ranks. Model is the model of all of them.
	Shape []int
	Model string
	// Batch is what the plan chose; zero if it leaves the batch to the job.
	Batch train.Batch
	// Epoch counts the epochs that have ended.
	Epoch    int
	Progress float64
}

// Devices is their number on all nodes.
func (h Held) Devices() int {
	sum := 0
	for _, n := range h.Shape {
		sum += n
	}
	return sum
}
