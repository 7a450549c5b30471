// Package metrics says what the index knows as metrics for Prometheus: of each job, of each owner's queue, and of each
// node and device. Its tables have a row for each metric. They follow from the records alone, so a restart changes no
// value.
package metrics

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/index"
)

// endedShown is how long a job is shown after its end: longer than any interval between scrapes, so that Prometheus
// sees its last values.
const endedShown = 15 * time.Minute

// metric is a row of a table: a metric of each T.
type metric[T any] struct {
	name, help string
	kind       prometheus.ValueType
	// labels are those besides the labels of a T.
	labels []string
	// of puts the values of a T, with the values of labels. It puts none if there is none.
	of func(v *T, put func(value float64, labels ...string))
}

// Collector collects the metrics of an index.
type Collector struct {
	most int
	read func(func(*index.Index))
	now  func() time.Time
}

// New makes the collector of an index that read gives to a function. It shows at most a number of jobs, and of owners
// of waiting jobs.
func New(most int, read func(func(*index.Index)), now func() time.Time) Collector {
	return Collector{most, read, now}
}

// Describe implements prometheus.Collector: what there is depends on the records.
func (c Collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c Collector) Collect(out chan<- prometheus.Metric) {
	var all []prometheus.Metric
	c.read(func(x *index.Index) { all = collect(x, c.most, c.now()) })
	for _, m := range all { // once the index is free again
		out <- m
	}
}

func collect(x *index.Index, most int, now time.Time) []prometheus.Metric {
	var all []prometheus.Metric
	chosen, left := choose(x, most, now)
	jobs := describe(x, chosen, now)
	owners, more := queues(x, most, now)
	nodes, devices := machines(x, now)
	all = rows(all, jobMetrics(), jobLabels(), jobs, (*job).labels)
	all = rows(all, queueMetrics(), ownerLabels(), owners, (*queue).labels)
	all = rows(all, nodeMetrics(), []string{"node"}, nodes, (*node).labels)
	all = rows(all, deviceMetrics(), []string{"node", "device", "model"}, devices, (*device).labels)
	all = rows(all, stateMetrics(), []string{"state"}, states(x), (*state).labels)
	return rows(all, leftMetrics(), []string{"what"}, []*leftOut{{"jobs", left}, {"owners", more}}, (*leftOut).labels)
}

// rows adds the metrics of a table for all values.
func rows[T any](all []prometheus.Metric, table []metric[T], labels []string, values []*T, of func(*T) []string) []prometheus.Metric {
	named := make([][]string, len(values))
	for i, v := range values {
		named[i] = of(v)
	}
	for _, m := range table {
		desc := prometheus.NewDesc(m.name, m.help, slices.Concat(labels, m.labels), nil)
		for i, v := range values {
			m.of(v, func(value float64, more ...string) {
				all = append(all, prometheus.MustNewConstMetric(desc, m.kind, value, slices.Concat(named[i], more)...))
			})
		}
	}
	return all
}

// leftOut counts what is not shown because there is too much of it.
type leftOut struct {
	what  string
	count int
}

func (l *leftOut) labels() []string { return []string{l.what} }

func leftMetrics() []metric[leftOut] {
	return []metric[leftOut]{{
		name: "switchyard_metrics_left_out", help: "Jobs and owners without metrics of their own, since there are more than web.metrics_jobs.", kind: prometheus.GaugeValue,
		of: func(l *leftOut, put func(float64, ...string)) { put(float64(l.count)) },
	}}
}

// state is a state of jobs that have not ended.
type state struct {
	name  train.State
	count int
}

func (s *state) labels() []string { return []string{string(s.name)} }

// states counts the jobs in each state in which a job has not ended.
func states(x *index.Index) []*state {
	count := map[train.State]int{}
	for _, j := range x.Jobs.All() {
		if j.Spec.Array == "" {
			count[j.State]++
		}
	}
	var all []*state
	for _, s := range train.LiveStates() {
		all = append(all, &state{s, count[s]})
	}
	return all
}

func stateMetrics() []metric[state] {
	return []metric[state]{{
		name: "switchyard_jobs", help: "Jobs that have not ended, by state.", kind: prometheus.GaugeValue,
		of: func(s *state, put func(float64, ...string)) { put(float64(s.count)) },
	}}
}

// choose returns at most a number of jobs, and how many more there are: those that hold devices first, then those that
// ended last, then those that have waited longest. An array has no metrics but those of its jobs.
func choose(x *index.Index, most int, now time.Time) (jobs []*train.Job, left int) {
	for _, j := range x.Jobs.All() {
		gone := j.State == train.StateRejected || j.State.Terminal() && now.Sub(j.FinishedAt) > endedShown
		if !gone && j.Spec.Array == "" {
			jobs = append(jobs, j)
		}
	}
	class := func(j *train.Job) int {
		switch {
		case j.State.Active():
			return 0
		case j.State.Terminal():
			return 1
		}
		return 2
	}
	slices.SortFunc(jobs, func(a, b *train.Job) int {
		return cmp.Or(cmp.Compare(class(a), class(b)), b.FinishedAt.Compare(a.FinishedAt), a.SubmittedAt.Compare(b.SubmittedAt), cmp.Compare(a.ID, b.ID))
	})
	shown := min(len(jobs), most)
	return jobs[:shown], len(jobs) - shown
}
