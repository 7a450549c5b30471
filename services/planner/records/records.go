// Package records makes the state of a decision of what the services have recorded. The live planner reads the records
// from the bus, and the simulator keeps those of its own world: both decide on what State makes of them.
package records

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

const (
	// NodeTimeout is the silence of a node after which nothing new is placed there: agents refresh its record every
	// 5 s.
	NodeTimeout = 20 * time.Second
	// NodeLost is the silence after which what runs there is assumed to be gone, too. Until then it keeps its
	// devices: an agent that restarts must not have its jobs stopped.
	NodeLost = 2 * time.Minute
)

// Records are the records that a decision rests on, by the keys of their buckets.
type Records struct {
	// Jobs are the register's jobs that have not ended.
	Jobs iter.Seq[*train.Job]
	// Whole lists all of a long queue in the state, for a policy that is to be taken as it was published.
	Whole    bool
	Nodes    iter.Seq[train.Node]
	Attempts map[string]train.Attempt
	Reports  map[string]train.AttemptReport
	Models   map[string]train.Model
	Settings map[string]train.Setting
	Tunings  map[string]train.Tuning
	Links    []state.Link
	// Conditions and Eligibility are by node.
	Conditions  map[string]train.NodeCondition
	Eligibility map[string]train.Eligibility
	// Tenants are the bounds of tenants, by the keys of their names, and Spendings the energy that their jobs have used.
	Tenants   map[string]access.Tenant
	Spendings map[string]contract.Spending
	// Usage is the decayed device time of tenants.
	Usage map[string]float64
	// Silence is for how long a node has not reported; nil: none is silent.
	Silence func(train.NodeID) time.Duration
	// Placed are the pods of no job that have memory of a GPU, Asking those that wait for some, by their UIDs.
	Placed map[string]train.PlacedPod
	Asking map[string]rpc.PodRequest
	// Interference returns what was measured on the devices of nodes; nil: the terms have it.
	Interference func([]train.Node) map[string]*curve.Interference
	// RestartSeconds is the measured mean time for which a restart holds devices before its processes run; 0 if unknown.
	RestartSeconds float64
}

// State is the input of a decision. last is the newest plan; known is false if there has never been one. terms is the
// part that does not change.
func (r Records) State(now time.Time, last train.Plan, known bool, terms state.State) state.State {
	s := r.Terms(terms)
	s.EnergyQuotas = r.energyQuotas(now, terms.EnergyQuotas)
	s.Balances = state.BalancesOf(r.Usage, s.Shares)
	s.Now, s.Memory = now, last.Memory
	if s.Tuning.RestartSeconds == 0 {
		s.Tuning.RestartSeconds = r.RestartSeconds
	}
	s.Nodes, s.Exclusions = r.liveNodes(now)
	s.Tuning.OneNode, s.Tuning.OneRealm = spread(s.Nodes)
	s.Links = r.Links
	planned := last.ByJob()
	s.Jobs, s.Behind = r.plannable(now, planned, known, line{balances: s.Balances}, max(Weighed, 2*devices(s.Nodes)))
	for i := range s.Jobs {
		a := r.Attempts[string(s.Jobs[i].ID)]
		s.Exclusions = append(s.Exclusions, a.Unstarted(now)...)
	}
	r.addPods(&s, planned)
	if r.Interference != nil && slices.ContainsFunc(s.Jobs, func(j state.Job) bool { return j.Spec.SharedMemory() > 0 }) {
		s.Interference = r.Interference(s.Nodes)
	}
	if !slices.ContainsFunc(s.Jobs, func(j state.Job) bool { return j.Spec.Energy != nil && j.Spec.Energy.StartBy != nil }) {
		s.Rates = nil // nobody waits for better ones
	}
	return s
}

// Terms returns the terms with what operators have set of tenants in the place of settings.
func (r Records) Terms(given state.State) state.State {
	given.Quotas, given.Shares = r.quotas(given.Quotas), r.shares(given.Shares)
	return given
}

// mostRealms is how many realms a plan tells apart: each is a place of its own that jobs are tried in.
const mostRealms = 64

// spread says whether each gang has to stay on one node, since every node has an executor of its own, or else whether
// it has to stay in one of several realms.
func spread(nodes []train.Node) (oneNode, oneRealm bool) {
	realms, several := map[train.Realm]bool{}, false
	for _, n := range nodes {
		several = several || realms[n.Realm()]
		realms[n.Realm()] = true
	}
	if !several || len(realms) > mostRealms {
		return true, false
	}
	return false, len(realms) > 1
}

// liveNodes returns the nodes that are not lost, and what keeps jobs off them.
func (r Records) liveNodes(now time.Time) (live []train.Node, exclusions []train.Exclusion) {
	booked := r.booked()
	for n := range r.Nodes {
		silent := time.Duration(0)
		if r.Silence != nil {
			silent = r.Silence(n.ID)
		}
		if silent >= NodeLost || len(n.Devices) == 0 {
			continue
		}
		live = append(live, n)
		if silent >= NodeTimeout {
			exclusions = append(exclusions, train.Exclusion{Node: n.ID, Reason: train.Reason{
				Code: train.NodeSilent, Message: fmt.Sprintf("node %s has not reported for more than %s", n.ID, NodeTimeout), Hint: "is its node agent running?",
			}})
		}
		exclusions = append(exclusions, n.Exclusions(r.Conditions[string(n.ID)], r.Eligibility[string(n.ID)], now)...)
		exclusions = append(exclusions, unplaced(&n, booked)...)
	}
	slices.SortStableFunc(exclusions, func(x, y train.Exclusion) int { return cmp.Compare(x.Node, y.Node) })
	return live, exclusions
}

// plannable returns the jobs that the decision is about, with what the last plan gave them, and those of a long queue
// that it does not weigh. Without a last plan, a running job counts as planned where it runs.
func (r Records) plannable(now time.Time, planned map[train.JobID]*train.Allocation, known bool, waiting line, front int) ([]state.Job, []train.JobID) {
	if r.Whole {
		front = math.MaxInt
	}
	weighed := r.split(planned, &waiting)
	first, behind := waiting.cut(front)
	weighed = append(weighed, first...)
	jobs := make([]state.Job, len(weighed))
	for i, j := range weighed {
		jobs[i] = r.job(j, now)
		jobs[i].Planned = holding(planned[j.ID])
		if !known && jobs[i].Running != nil {
			jobs[i].Planned = &jobs[i].Running.Holding
		}
	}
	return jobs, behind
}

// holding is what an allocation gives; nil for none.
func holding(a *train.Allocation) *state.Holding {
	if a == nil {
		return nil
	}
	h := state.HoldingOf(*a)
	return &h
}

// split returns the jobs that hold something, were tried or wait for other than devices. The others wait in line.
func (r Records) split(planned map[train.JobID]*train.Allocation, waiting *line) (others []*train.Job) {
	for j := range r.Jobs {
		a, tried := r.Attempts[string(j.ID)]
		waitsForAdmission := j.State == train.StateNone || j.State == train.StateSubmitted
		paused := !a.Live() && r.Settings[string(j.ID)].Pauses(j.EpochsDone)
		if waitsForAdmission || paused || j.Spec.Array != "" || j.AwaitsBatch() || tried && a.Ends(*j) {
			continue
		}
		if tried || planned[j.ID] != nil || !awaitsDevices(j) {
			others = append(others, j)
		} else {
			waiting.add(j)
		}
	}
	return others
}

func devices(nodes []train.Node) int {
	n := 0
	for i := range nodes {
		n += len(nodes[i].Devices)
	}
	return n
}

// job puts together what the records say of one job.
func (r Records) job(j *train.Job, now time.Time) state.Job {
	key := string(j.ID)
	wish := r.Settings[key]
	job := state.Job{
		ID: j.ID, Spec: j.Spec, Priority: j.EffectivePriority(), SubmittedAt: j.QueuedAt(), Awaits: j.Awaits(), EpochsDone: j.EpochsDone,
		RunSeconds: j.RunSeconds, DeviceSeconds: j.DeviceSeconds, Restarts: j.Restarts, CancelRequested: j.CancelRequested,
		RecentRestarts: recentRestarts(j, now), Outgrown: j.Outgrown, WantsDevices: int(wish.Values[train.SettingDevices]),
		BatchDevices: wish.BatchDevices,
	}
	a, tried := r.Attempts[key]
	report := train.AttemptReport{}
	if tried {
		report = r.Reports[ReportKey(a)]
	}
	if j.OwnBatch > 0 {
		job.Spec = j.Spec.WithOwnBatch(j.OwnBatch)
	}
	job.Spec = job.Spec.Sized(report.Steps, a.DeviceCount())
	if done, known := j.Done(job.Spec, a, report, now); known {
		job.Done = done
	}
	if m, ok := r.Models[key]; ok {
		job.Model, job.Slow = &m, m.Stragglers
	}
	if !a.Live() {
		if why := j.Withheld(); why.Code != "" {
			job.Withheld = &why
		}
		return job
	}
	if job.WantsDevices == 0 {
		job.WantsDevices = resized(job.Spec, a.DeviceCount())
		job.Resized = job.WantsDevices > 0
	}
	job.CancelRequested = job.CancelRequested || j.Leaves(a) && (report.Askable() || j.Wanted.Force)
	job.EpochsDone = max(job.EpochsDone, report.EpochsDone)
	job.Running = &state.Running{
		Holding: state.Holding{Node: a.Node, Devices: a.Devices, Memory: a.Memory, Parts: a.Parts, Servers: a.ServerParts()},
		// A stop that its code cannot hear does not make it leave.
		StopPending: a.Stop != train.StopNone && report.Askable(), Epochs: max(report.EpochsDone-a.StartedEpochs, 0), Spoke: report.Askable(),
		Saved: report.Saved(a), AnyStep: report.AnyStep, Tuned: r.tuned(&a, now),
	}
	if next, known := report.NextSave(j.Spec, a.DeviceCount(), now); known {
		job.Running.NextSaveSeconds = next.Seconds()
	}
	if !a.StartedAt.IsZero() {
		job.Running.Seconds = max(now.Sub(a.StartedAt).Seconds(), 0)
		job.RunSeconds += job.Running.Seconds
		job.DeviceSeconds += job.Running.Seconds * float64(a.DeviceCount())
	}
	return job
}

// tunedFor is how long after a change of micro-batches the models may still be those of a trial.
const tunedFor = 10 * time.Second

// tuned says whether the micro-batch of an attempt is one of a trial, or was a moment ago.
func (r Records) tuned(a *train.Attempt, now time.Time) bool {
	return slices.ContainsFunc(a.Devices, func(d train.DeviceID) bool {
		t := r.Tunings[train.TuningKey(a.Node, d)]
		one, is := t.Of(a.Job, a.Number)
		return is && one.MicroBatch > 0 && (t.Settled.Code == "" || now.Sub(t.Since) < tunedFor)
	})
}

// resized returns the number of devices that a spec asks for if an attempt has more or fewer: it was edited meanwhile.
// The attempt keeps what it has until the planner can give it that number; 0 if the attempt is as the spec asks.
func resized(spec train.Spec, has int) int {
	if least, most := spec.DeviceBounds(); has < least || has > most {
		return min(max(has, least), most)
	}
	return 0
}

// ReportKey is where the report of an attempt is.
func ReportKey(a train.Attempt) string { return fmt.Sprintf("%s.%d", a.Job, a.Number) }

// recentRestarts counts how often plans had a job leave within the last hour.
func recentRestarts(j *train.Job, now time.Time) int {
	n := 0
	for _, c := range j.History {
		if c.Fact == event.FactPreempted && now.Sub(c.At) < time.Hour {
			n++
		}
	}
	return n
}

// quotas returns the quotas of tenants: those of their records, in place of the installation's settings.
func (r Records) quotas(settings map[string]int) map[string]int {
	if len(r.Tenants) == 0 {
		return settings
	}
	quotas := maps.Clone(settings)
	for _, t := range r.Tenants {
		if t.Devices == nil {
			continue
		}
		if quotas == nil {
			quotas = map[string]int{}
		}
		quotas[t.Name] = *t.Devices
	}
	return quotas
}

// energyQuotas returns the quotas of energy of this month, with what was used of them. Without records of tenants they
// are the given ones.
func (r Records) energyQuotas(now time.Time, given map[string]state.EnergyQuota) map[string]state.EnergyQuota {
	if r.Tenants == nil {
		return given
	}
	month := now.UTC()
	next := time.Date(month.Year(), month.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	var quotas map[string]state.EnergyQuota
	for key, t := range r.Tenants {
		if t.EnergyKWh == nil {
			continue
		}
		q := state.EnergyQuota{Allowed: unit.Energy(math.Min(*t.EnergyKWh, access.MostEnergyKWh) * float64(unit.KilowattHour)), Until: next}
		if used := r.Spendings[contract.SpendingKey(key)]; used.Month == month.Format(contract.MonthForm) {
			q.Used = used.Energy
		}
		if quotas == nil {
			quotas = map[string]state.EnergyQuota{}
		}
		quotas[t.Name] = q
	}
	return quotas
}

// shares returns the shares of the tenants that have some. Without records of tenants they are the given ones.
func (r Records) shares(given map[string]float64) map[string]float64 {
	if r.Tenants == nil {
		return given
	}
	var shares map[string]float64
	for _, t := range r.Tenants {
		if t.Shares == nil || !(*t.Shares > 0) {
			continue
		}
		if shares == nil {
			shares = map[string]float64{}
		}
		shares[t.Name] = *t.Shares
	}
	return shares
}
