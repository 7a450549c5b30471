package metrics

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/index"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// job is a job with the records about it.
type job struct {
	*train.Job
	view    view.Job
	account train.Account
	course  train.EnergyProgress
	report  train.AttemptReport
	now     time.Time
}

// jobLabels are the labels of each metric of a job. Prometheus has a label job of its own.
func jobLabels() []string { return append([]string{"job_id", "name"}, ownerLabels()...) }

func (j *job) labels() []string {
	return append([]string{string(j.ID), j.Spec.Name}, ownerOf(j.Job).labels()...)
}

// describe gathers the records about jobs.
func describe(x *index.Index, jobs []*train.Job, now time.Time) []*job {
	ids := make([]train.JobID, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	views, _ := view.Some(x, ids, now)
	all := make([]*job, len(jobs))
	for i, j := range jobs {
		all[i] = &job{Job: j, view: views[i], now: now}
		all[i].account = known(x.Accounts, string(j.ID))
		all[i].course = known(x.Courses, string(j.ID))
		all[i].report = known(x.Reports, contract.ReportKey(j.ID, j.Attempt))
	}
	return all
}

// known returns a record, or an empty one.
func known[T any](t *index.Table[T], key string) (value T) {
	if r := t.Get(key); r != nil {
		value = *r
	}
	return value
}

// components are the components of each account. A job's counters begin with 0, so that its first joules count.
func (j *job) components() map[string]float64 {
	all := map[string]float64{event.ComponentCPU: 0}
	if j.view.Device == train.KindGPU {
		all[event.ComponentGPU] = 0
	}
	for component, energy := range j.account.Components {
		all[component] = energy.Joules()
	}
	return all
}

// loss returns the loss of the newest epoch that has one; nil if none has.
func (j *job) loss() *float64 {
	for _, e := range slices.Backward(j.course.Epochs) {
		if e.Loss != nil {
			return e.Loss
		}
	}
	return nil
}

// waited returns how long a job has waited for its first start.
func (j *job) waited() time.Duration {
	return max(cmp.Or(j.StartedAt, j.FinishedAt, j.now).Sub(j.SubmittedAt), 0)
}

// jobMetrics is the table of the metrics of each job.
func jobMetrics() []metric[job] {
	gauge := func(name, help string, value func(*job) *float64, labels func(*job) []string, names ...string) metric[job] {
		return metric[job]{name: name, help: help, kind: prometheus.GaugeValue, labels: names, of: func(j *job, put func(float64, ...string)) {
			if v := value(j); v != nil {
				put(*v, labels(j)...)
			}
		}}
	}
	none := func(*job) []string { return nil }
	return []metric[job]{
		gauge("switchyard_job_state", "1, with the state of the job and its reason.", func(*job) *float64 { return new(1.0) },
			func(j *job) []string { return []string{string(j.State), j.view.Reason} }, "state", "reason"),
		{
			name: "switchyard_job_energy_joules_total", help: "Energy in the account of the job, by component.", kind: prometheus.CounterValue, labels: []string{"component"},
			of: func(j *job, put func(float64, ...string)) {
				all := j.components()
				for _, component := range slices.Sorted(maps.Keys(all)) {
					put(all[component], component)
				}
			},
		},
		{
			name: "switchyard_job_run_seconds_total", help: "How long the job has run in all.", kind: prometheus.CounterValue,
			of: func(j *job, put func(float64, ...string)) { put(j.RunSecondsAt(j.now)) },
		},
		{
			name: "switchyard_job_restarts_total", help: "Attempts of the job after the first.", kind: prometheus.CounterValue,
			of: func(j *job, put func(float64, ...string)) { put(float64(j.Restarts)) },
		},
		gauge("switchyard_job_devices", "Devices that the job holds.", func(j *job) *float64 { return new(float64(len(j.Devices))) },
			func(j *job) []string { return []string{string(j.view.Device)} }, "kind"),
		gauge("switchyard_job_progress_ratio", "The part of the training that is done, if its length is known.", func(j *job) *float64 { return j.view.Progress }, none),
		gauge("switchyard_job_epochs", "Epochs done.", func(j *job) *float64 { return new(float64(max(j.EpochsDone, j.report.EpochsDone))) }, none),
		gauge("switchyard_job_step_seconds", "Mean time of the job's last optimizer steps.", func(j *job) *float64 { return positive(j.report.Steps.Seconds) }, none),
		gauge("switchyard_job_loss", "Loss of the newest epoch, in the job's own unit.", (*job).loss, none),
		gauge("switchyard_job_waiting_seconds", "Time from the submission to the first start, so far.", func(j *job) *float64 { return new(j.waited().Seconds()) }, none),
		gauge("switchyard_job_predicted_finish_timestamp_seconds", "When the job ends by the newest plan.", func(j *job) *float64 {
			if m := j.view.Predicted.Finish; m != nil {
				return new(float64(m.Expected.Unix()))
			}
			return nil
		}, none),
		gauge("switchyard_job_cost", "Cost of the energy of a job that has ended, in the currency of the tariff.", func(j *job) *float64 { return j.account.Cost },
			func(j *job) []string { return []string{j.account.Currency} }, "currency"),
		gauge("switchyard_job_co2e_grams", "Carbon of the energy of a job that has ended.", func(j *job) *float64 { return j.account.CO2eGrams }, none),
	}
}

// positive returns a value, or nil if it is 0, which means unknown.
func positive(v float64) *float64 {
	if v > 0 {
		return &v
	}
	return nil
}
