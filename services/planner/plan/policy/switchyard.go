package policy

import (
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// Switchyard is the project's own policy: it minimises the mean completion time of jobs whose speed it learns while
// they run.
//
// Goodput. G(n) is the progress per second on n devices, in steps at the base batch: the gain of a step by the gradient
// noise over its time, at the batch and accumulation for which that is most. Step times are a fit with terms for
// compute, for the network of a node and for that between nodes, corrected by how far it was off at the configurations
// like it that have run. Jobs of one signature share what they taught, step times as well as how the noise scale
// develops over a training and differs between batches; what nobody has run yet is filled in by a prior, and on another
// model of device by the ratio at which other signatures ran on the two. Batches up to twice as large as have run are
// tried where they might pay, since a batch changes without a restart. The speed-up s(n) is G(n)/G(1), partly now and
// partly over all that is left of the training, T(1)/T(n), where T is the predicted time to the end.
//
// Weight. For jobs with a power law as speed-up the mean completion time is least if each job weighs as much as those
// that wait for it: ordered by T(1), K jobs have more left than this one, and each device that it holds for a second
// delays them together by K/N seconds, N the cluster's devices; with those that come meanwhile, which wait as well, and
// the makespan, which counts as nearly one job more, k = 1.95 + 1.4 K. A job that pays for that ends at a cost of
// T(n)(1+nk/N), so a second's work on one device is worth
//
//	w = min over n of (1 + nk/N)/s(n).
//
// The critical path weighs, too: w grows by 0.2 c/C, c the time to the job's end on what is best for it, C the longest
// of these: the job that ends last in any case must not be kept waiting by many small ones.
//
// On several models of device n and N count a device by its speed for the job, the fastest as one.
//
// Those with the least left thus get the most, but no more than they use well. In a job that has held fewer devices
// than others for hours the minimum is only over what it may expect, n <= (D + 3h*N)/(age + 3h) with D its device time:
// its weight grows, and so no job starves.
//
// Allocation. The devices go where sum of w*s(n) is most. A job that would have to restart for R seconds counts its
// speed-up only for the rest of the time for which the change will last, 1 - R/min(T(n), H), so that a plan is left
// alone unless a change pays. H is 450 s while jobs keep coming. If no job has come for longer, the next one is
// expected after as long again: H is the age of the youngest job, but at most 15 R and at least 2 R. A preempted job
// pays half of R for coming back, 1 - R/2H: long jobs must not relieve each other every minute, each only to restart.
// Each pool of one model of device has a price, found by bisection, at which the jobs together ask for no more than
// there is, each for the option with the largest w*s(n) - price*n; what is left over goes to whom it is worth most.
// Where pools are small the sum is then made the most that there is, one pool after the other. Sizes are those that
// fill a node or nodes. Gangs that keep their size stay where they are; the others go, the large ones first, to the
// node that they leave the least room on, or over the emptiest ones. A state without news leaves the plan as it is.
//
// Priorities, quotas and power. Jobs of a higher priority get at least their minimum before lower ones get anything,
// from these if need be. Each tenant's quota and the power budget have a price like the pools: as the budget falls, the
// jobs lose devices first whose watts are worth least.
//
// Energy. With an EnergyWeight eta an option is worth P/(eta*p + (1-eta)*P) times as much, p its power and P the most
// that the job could draw: at 1 the options are compared by progress per joule.
//
// Shares. A job that waits is worth 2^-u as much, u the part of all recent device time that its tenant has used over
// the part that its shares grant. A job that has devices does not lose them by that.
//
// Deadlines. An option by which the job ends in time is worth up to 8 times as much, the closer it gets. A job that can
// no longer make it is treated as if it had none; no job is stopped at a deadline.
//
// Two bounds hold within a priority. A job that has waited for more than StarvationSeconds in all goes before all that
// have not, and among those that have, in order of submission: from then on it holds at least its minimum, unless
// higher priorities, earlier ones like itself, jobs that cannot be moved yet, its quota or the power budget leave less
// than that; then idle devices are reserved for it until they are enough, as under every policy. A job whose
// finish-time fairness (its time in the cluster over its time alone on its share, devices/jobs) would exceed
// FairnessBound even if it held that share from now on gets that share before all others but these, the worst first.
//
// Jobs that keep their batch are compared by their predicted remaining time, 1/T(n) for G(n). Live jobs
// leave at an epoch's end only (AtEpochs): an attempt is left alone until it can be asked to leave, the gain of a
// change counts for the epochs after the present one, and a change must be worth a tenth more than what the job has. If
// two jobs need as long, the first one keeps its devices. A job without a prediction gets its least at once, out of
// what others hold beyond theirs. If the back end keeps a gang on one node (OneNode), no option is larger than that,
// and what is free on a node but not where others could use it goes to the gangs there.
type Switchyard struct {
	// Oracle returns the truth about a job, which the policy then reads instead of measurements. With a trace the
	// difference shows the cost of learning.
	Oracle func(*state.Job) *Truth
}

// Truth is the state of a job that a trace knows and that no service observed.
type Truth struct {
	// StepTime is the time of a step on packed devices and, of it, of the exchange; Gain the progress of a step in an
	// epoch.
	StepTime func(cfg train.Config, model string) (step, sync float64)
	Gain     func(globalBatch, epoch int) float64
}

// Name is switchyard, or switchyard-oracle.
func (p Switchyard) Name() string {
	if p.Oracle != nil {
		return "switchyard-oracle"
	}
	return "switchyard"
}

// Bounds returns the bounds that the user declared.
func (Switchyard) Bounds(j *state.Job, spec train.Spec) (least, most int) { return Declared(j, spec) }

// Decide allocates by prices.
func (p Switchyard) Decide(r *Round) {
	known := recall(r)
	known.oracle = p.Oracle
	for _, g := range r.Kept {
		known.annotate(r, g)
	}
	serve(r, known)
	for _, g := range r.Candidates {
		g.Notes.MayGrow = r.Tuning.AtEpochs || !r.Spans
	}
	r.Memory = known.close()
}

const (
	// horizonSeconds is the time that a change is assumed to last while jobs keep coming.
	horizonSeconds = 450
	// mostRestarts bounds the time that a change is assumed to last, in restarts: since predictions are not exact, a
	// change has to gain a fifteenth.
	mostRestarts = 15
	// stillToCome scales the number of waiting jobs by the jobs that come meanwhile. It and horizonSeconds were chosen on
	// published workloads; from 1 to 2, and from 400 to 900 s, average completion times there differ by about a
	// hundredth.
	stillToCome = 1.4
	// makespanJobs is the number of jobs for which the last one to end counts: itself and, for the makespan, nearly one
	// more. It keeps the last jobs from running one after the other on more devices than they use well.
	makespanJobs = 1.95
	// comingBack is the part of its restart that a preempted job pays for coming back.
	comingBack = 0.5
	// patienceSeconds is the time for which a job is assumed to have had all devices, whatever it held.
	patienceSeconds = 3 * 3600
	// criticalShare is the extra weight of the job that ends last even with all devices that it can use: it bounds the
	// makespan. Without it makespans are a hundredth to a fiftieth longer and averages half a hundredth shorter.
	criticalShare = 0.2
	// lookAhead is the part of the speed-up that is over the rest of the training instead of now.
	lookAhead = 0.3
)
