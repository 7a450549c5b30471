package sim

import "github.com/switchyard-dl/switchyard/services/planner/plan"

// course is the truth about a job: how its training goes on whatever it holds. Traces have one kind (Application), the facts of a live cluster another
// (Recorded); the loop around them is the same.
type course interface {
	// epochs is how many there are; end is the progress at which an epoch (from 1) ends.
	epochs() int
	end(epoch int) float64
	// goodput is the progress per second on what the job holds now; the job measures on the way.
	goodput(j *job) float64
	// lasts is how long the rest of an epoch takes that is computed to take so many seconds.
	lasts(seconds float64) float64
	// adjust sets the batch for the present devices.
	adjust(j *job, tune tuner)
	// observe is what a planner would know of the job.
	observe(w *world, j *job) plan.Job
	// alone is how long the job takes by itself on so many devices, its one start included.
	alone(w *world, j *job, devices int) float64
}
