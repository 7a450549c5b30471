// Package view is what a person sees of an index: the list of jobs with what the newest plan predicts for them. The
// service web and the command line make the same views, so it does not matter who of them has read the bus.
package view

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/web/index"
)

// Query chooses jobs of a list.
type Query struct {
	// User is whose jobs; empty: everybody's. A submission that admission could not read has no user and is listed
	// for all.
	User string
	// States are the states of the jobs; none: all. An array that has not ended is judged by its jobs: with NoMembers one
	// of them must be in such a state, else all that have not ended.
	States []train.State
	// Name is a pattern that the names of the jobs match, such as resnet*; empty: all.
	Name string
	// Project is the project of the jobs; empty: all.
	Project string
	// Labels are labels that the jobs have, all of them.
	Labels map[string]string
	// Newest is the largest number of jobs; 0: no bound.
	Newest int
	// Finished is the largest number of jobs that have ended; 0: no bound.
	Finished int
	// NoRejected leaves out submissions that were rejected, unless States has that state. NoTrials leaves out the
	// trials of experiments.
	NoRejected, NoTrials bool
	// Array is the id of an array: only it and its jobs. NoMembers leaves out the jobs of arrays unless Array is given.
	Array     string
	NoMembers bool
	// Limit is the largest number of jobs on a page; 0: no bound. After is the Next of the page before.
	Limit int
	After string
}

// Page is a part of a list of jobs.
type Page struct {
	// Jobs are the newest first.
	Jobs []Job `json:"jobs"`
	// Left counts the jobs that are not in the list.
	Left Left `json:"left"`
	// Next is the after of the next page; empty on the last one.
	Next string `json:"next,omitempty"`
}

// Left counts the jobs that a query leaves out.
type Left struct {
	// Older are those over the bounds newest and finished.
	Older int `json:"older"`
	// Others belong to other users.
	Others int `json:"others"`
	// OtherStates are in other states.
	OtherStates int `json:"other_states"`
	// Unlike have another name or project, or lack a label.
	Unlike int `json:"unlike"`
	// Rejected are submissions that were rejected.
	Rejected int `json:"rejected"`
	// Trials belong to experiments.
	Trials int `json:"trials"`
}

// Job is one job of a list.
type Job struct {
	// ID is unique and never used again.
	ID train.JobID `json:"id"`
	// Name is what its user called it; several jobs may have the same.
	Name string `json:"name"`
	// User is who submitted it, Tenant whose quota it counts against.
	User   string `json:"user"`
	Tenant string `json:"tenant,omitempty"`
	// Project and Labels are its user's words for it.
	Project string            `json:"project,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	// ArrayMember says which job of an array it is.
	ArrayMember *train.ArrayMember `json:"array_member,omitempty"`
	// Experiment is the experiment whose trial it is.
	Experiment string `json:"experiment,omitempty"`
	// Jobs counts the jobs of an array by their states.
	Jobs map[train.State]int `json:"jobs,omitempty"`
	// State is the job's state. An array is running while any of its jobs is.
	State train.State `json:"state"`
	// Reason is why, for programs; Message is the same for people.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Devices are those that it holds or held last.
	Devices []train.DeviceID `json:"devices"`
	// MinDevices is the number of devices that it needs.
	MinDevices int `json:"min_devices"`
	// Device is the kind of the devices that it holds or, if it waits, asks for.
	Device train.DeviceKind `json:"device,omitempty"`
	// EpochsDone is the number of epochs behind it.
	EpochsDone int `json:"epochs_done"`
	// MaxEpochs is the number of epochs of the whole training; 0 if it is unknown.
	MaxEpochs int `json:"max_epochs"`
	// Progress is the part of the training that is done, by its steps if they are known.
	Progress *float64 `json:"progress,omitempty"`
	// RemainingSeconds is the predicted rest of a running job.
	RemainingSeconds *float64 `json:"remaining_seconds,omitempty"`
	// StartInSeconds is the predicted wait of a waiting job.
	StartInSeconds *float64 `json:"start_in_seconds,omitempty"`
	// Predicted is when it starts and ends, with intervals, by the newest plan.
	Predicted train.Predicted `json:"predicted,omitzero"`
	// RunSeconds is how long its processes have run.
	RunSeconds float64 `json:"run_seconds"`
	// Energy is what it has used, in microjoules.
	Energy unit.Energy `json:"energy_uj"`
	// EnergyMethods are how its energy was measured.
	EnergyMethods []string `json:"energy_methods"`
	// Cost is the price of its energy in Currency, once it has ended and if the operator's tariff knows it. That of an
	// array is of its jobs, as its energy is.
	Cost     *float64 `json:"cost,omitempty"`
	Currency string   `json:"currency,omitempty"`
	// Deadline is when it should have ended; EstimatedHours is how long its user thought that it runs.
	Deadline       *time.Time `json:"deadline,omitempty"`
	EstimatedHours float64    `json:"estimated_hours,omitempty"`
	// Tuning is its micro-batch while it shares a device.
	Tuning *Tuning `json:"tuning,omitempty"`
	// SubmittedAt is when the bus stored its submission.
	SubmittedAt time.Time `json:"submitted_at"`
	// StartedAt is when its processes first ran.
	StartedAt time.Time `json:"started_at,omitzero"`
	// FinishedAt is when it ended.
	FinishedAt time.Time `json:"finished_at,omitzero"`
}

// Jobs returns a page of the list of jobs. It fails if After is not the Next of a page.
func Jobs(x *index.Index, q Query, now time.Time) (Page, error) {
	after, err := parseCursor(q.After)
	if err != nil {
		return Page{}, err
	}
	all := make([]*train.Job, 0, 64)
	for _, j := range x.Jobs.All() {
		all = append(all, j)
	}
	arrays := q.arrays(all)
	all, rejected, trials := q.relevant(x, all)
	chosen, left := q.choose(all, arrays)
	left.Rejected, left.Trials = rejected, trials
	page := Page{Jobs: []Job{}, Left: left}
	if after != nil {
		from, _ := slices.BinarySearchFunc(chosen, after, func(j, after *train.Job) int { return cmp.Or(newestFirst(j, after), -1) })
		chosen = chosen[from:]
	}
	if q.Limit > 0 && len(chosen) > q.Limit {
		chosen = chosen[:q.Limit]
		page.Next = cursor(chosen[q.Limit-1])
	}
	row := rows(x, now)
	page.Jobs = make([]Job, 0, len(chosen))
	for _, j := range chosen {
		page.Jobs = append(page.Jobs, row(j))
	}
	return page, nil
}

// Some returns the given jobs as a list shows them, and the ids of those that are gone.
func Some(x *index.Index, ids []train.JobID, now time.Time) (jobs []Job, gone []train.JobID) {
	row := rows(x, now)
	for _, id := range ids {
		if j := x.Jobs.Get(string(id)); j != nil {
			jobs = append(jobs, row(j))
		} else {
			gone = append(gone, id)
		}
	}
	return jobs, gone
}

// rows returns a function that makes the line of a job, with what the newest plan says about it.
func rows(x *index.Index, now time.Time) func(*train.Job) Job {
	plan := x.Plan()
	predictions, waits := plan.Predictions(), plan.WaitingByJob()
	return func(j *train.Job) Job {
		return newJob(x, reworded(j, plan.Generation, waits[j.ID]), predictions[j.ID], now)
	}
}

// cursor names a place in the list that stays where it is when jobs come or go.
func cursor(j *train.Job) string {
	return j.SubmittedAt.UTC().Format(time.RFC3339Nano) + "/" + string(j.ID)
}

// ErrCursor reports that no page ends at the given place.
var ErrCursor = errors.New("after is the next of the page before, as it is")

func parseCursor(text string) (*train.Job, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // the list from its beginning
	}
	stamp, id, _ := strings.Cut(text, "/")
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil || id == "" {
		return nil, fmt.Errorf("after %q: %w", text, ErrCursor)
	}
	return &train.Job{ID: train.JobID(id), SubmittedAt: at}, nil
}

// newestFirst orders jobs as jobref does, without copying them.
func newestFirst(x, y *train.Job) int {
	if order := y.SubmittedAt.Compare(x.SubmittedAt); order != 0 {
		return order
	}
	return cmp.Compare(y.ID, x.ID)
}

// relevant leaves out what a person has seen elsewhere: submissions whose rejection was the answer of submit, and the
// trials of experiments.
func (q Query) relevant(x *index.Index, jobs []*train.Job) (kept []*train.Job, rejected, trials int) {
	kept = jobs[:0]
	for _, j := range jobs {
		_, isTrial := contract.ExperimentOf(j.ID, x.Experiments.Get)
		switch {
		case q.NoRejected && j.State == train.StateRejected && !slices.Contains(q.States, train.StateRejected):
			rejected++
		case q.Array != "" && string(j.ID) != q.Array && string(j.Belongs()) != q.Array:
		case q.Array == "" && q.NoMembers && j.Belongs() != "":
		case q.NoTrials && isTrial:
			trials++
		default:
			kept = append(kept, j)
		}
	}
	return kept, rejected, trials
}

// members counts the jobs of an array: all, those in the states of a query, and how many of these have not ended.
type members struct{ all, in, live, liveIn int }

// arrays counts the jobs of each array, if the states of the query matter.
func (q Query) arrays(jobs []*train.Job) map[train.JobID]members {
	if len(q.States) == 0 {
		return nil
	}
	of := map[train.JobID]members{}
	for _, j := range jobs {
		array := j.Belongs()
		if array == "" {
			continue
		}
		m, in := of[array], slices.Contains(q.States, j.State)
		m.all++
		if in {
			m.in++
		}
		if !j.State.Terminal() {
			m.live++
			if in {
				m.liveIn++
			}
		}
		of[array] = m
	}
	return of
}

// inStates reports whether a job is in the states of the query. of are its jobs if it is an array. The record of an
// array waits while its jobs run, so that its own state says nothing until it ends.
func (q Query) inStates(j *train.Job, of members) bool {
	own := len(q.States) == 0 || slices.Contains(q.States, j.State)
	switch {
	case of.all == 0:
		return own
	case j.State.Terminal():
		return own || q.NoMembers && of.in > 0
	case q.NoMembers:
		return of.in > 0
	}
	return of.live > 0 && of.liveIn == of.live
}

// choose picks and orders the jobs of the list, on all its pages.
func (q Query) choose(jobs []*train.Job, arrays map[train.JobID]members) ([]*train.Job, Left) {
	var left Left
	chosen := jobs[:0]
	for _, j := range jobs {
		switch {
		case q.User != "" && j.Spec.User != q.User && j.Spec.User != "":
			left.Others++
		case !q.inStates(j, arrays[j.ID]):
			left.OtherStates++
		case !q.like(&j.Spec):
			left.Unlike++
		default:
			chosen = append(chosen, j)
		}
	}
	slices.SortFunc(chosen, newestFirst)
	kept := q.newest(chosen)
	left.Older = len(chosen) - len(kept)
	return kept, left
}

// newest applies the bounds Newest and Finished to jobs, which are sorted from the newest to the oldest.
func (q Query) newest(jobs []*train.Job) []*train.Job {
	kept, ended := make([]*train.Job, 0, len(jobs)), 0
	for _, j := range jobs {
		if j.State.Terminal() {
			ended++
		}
		if (q.Newest == 0 || len(kept) < q.Newest) && (q.Finished == 0 || !j.State.Terminal() || ended <= q.Finished) {
			kept = append(kept, j)
		}
	}
	return kept
}

// like reports whether a job has the name, the project and the labels of the query.
func (q Query) like(s *train.Spec) bool {
	if named, err := path.Match(q.Name, s.Name); q.Name != "" && (err != nil || !named) {
		return false
	}
	for key, value := range q.Labels {
		if has, is := s.Labels[key]; !is || has != value {
			return false
		}
	}
	return q.Project == "" || q.Project == s.Project
}

func newJob(x *index.Index, j *train.Job, predicted train.Predicted, now time.Time) Job {
	v := Job{
		ID: j.ID, Name: j.Spec.Name, User: j.Spec.User, Tenant: j.Spec.Tenant, Project: j.Spec.Project, Labels: j.Spec.Labels, State: j.State, Reason: j.Reason, Message: j.Message,
		Devices: []train.DeviceID{}, MinDevices: j.Spec.WithDefaults().MinDevices, Device: j.Spec.Device, EpochsDone: j.EpochsDone, MaxEpochs: j.Spec.MaxEpochs,
		RunSeconds: j.RunSecondsAt(now), EnergyMethods: []string{}, Tuning: TuningOf(x, j.ID, j.Attempt), Progress: progress(x, j, now),
		Deadline: j.Spec.Deadline, EstimatedHours: j.Spec.EstimatedHours,
		SubmittedAt: j.SubmittedAt, StartedAt: j.StartedAt, FinishedAt: j.FinishedAt,
	}
	if len(j.Devices) > 0 {
		v.Devices, v.Device = j.Devices, j.Devices[0].Kind()
	}
	if account := x.Accounts.Get(string(j.ID)); account != nil {
		v.Energy, v.Cost, v.Currency = account.Energy, account.Cost, account.Currency
		if len(account.Methods) > 0 {
			v.EnergyMethods = account.Methods
		}
	}
	if j.State.Active() {
		if reason, silent := silent(x, j.ID, now); silent {
			v.Reason, v.Message = reason.Code, reason.Message
		}
	}
	if !j.State.Terminal() {
		v.Predicted = predicted
	}
	v.ArrayMember = j.Spec.ArrayMember
	if experiment, is := contract.ExperimentOf(j.ID, x.Experiments.Get); is {
		v.Experiment = experiment
	}
	v.countMembers(x, j, now)
	in := func(m *train.Moment) *float64 {
		if m == nil {
			return nil
		}
		return new(max(m.Expected.Sub(now).Seconds(), 0))
	}
	if v.StartInSeconds = in(v.Predicted.Start); v.StartInSeconds == nil {
		v.RemainingSeconds = in(v.Predicted.Finish)
	}
	return v
}

// countMembers counts the jobs of an array, and says so in words.
func (v *Job) countMembers(x *index.Index, array *train.Job, now time.Time) {
	for _, id := range array.Members() {
		j := x.Jobs.Get(string(id))
		if j == nil {
			continue
		}
		if v.Jobs == nil {
			v.Jobs = map[train.State]int{}
		}
		v.Jobs[j.State]++
		v.RunSeconds += j.RunSecondsAt(now)
		if j.State.Active() {
			v.State = train.StateRunning
		}
		if account := x.Accounts.Get(string(id)); account != nil {
			v.Energy += account.Energy
			v.addCost(account.Cost)
			v.EnergyMethods = slices.Compact(slices.Sorted(slices.Values(slices.Concat(v.EnergyMethods, account.Methods))))
		}
	}
	var words []string
	for _, s := range slices.Sorted(maps.Keys(v.Jobs)) {
		words = append(words, fmt.Sprintf("%d %s", v.Jobs[s], s))
	}
	if len(words) > 0 {
		v.Message = strings.Join(words, ", ")
	}
}

// addCost adds the cost of one of an array's jobs. The sum is unknown if one of them is.
func (v *Job) addCost(cost *float64) {
	if v.Cost == nil || cost == nil {
		v.Cost = nil
		return
	}
	v.Cost = new(*v.Cost + *cost)
}

// progress returns the part of a training that is done; nil if its length is unknown.
func progress(x *index.Index, j *train.Job, now time.Time) *float64 {
	var attempt train.Attempt
	var report train.AttemptReport
	if a := x.Attempts.Get(string(j.ID)); a != nil {
		attempt = *a
		if r := x.Reports.Get(contract.ReportKey(j.ID, a.Number)); r != nil {
			report = *r
		}
	}
	if done, known := j.Progress(attempt, report, now); known {
		return &done
	}
	return nil
}

// silent returns the reason if the code of a running job has gone silent.
func silent(x *index.Index, id train.JobID, now time.Time) (train.Reason, bool) {
	attempt := x.Attempts.Get(string(id))
	if attempt == nil {
		return train.Reason{}, false
	}
	report := x.Reports.Get(contract.ReportKey(id, attempt.Number))
	if report == nil {
		return train.Reason{}, false
	}
	return train.Silent(*attempt, *report, now)
}
