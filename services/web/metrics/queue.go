package metrics

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/index"
)

// owner is whose jobs are counted together.
type owner struct{ tenant, user, project string }

func ownerLabels() []string { return []string{"tenant", "user", "project"} }

func (o owner) labels() []string { return []string{o.tenant, o.user, o.project} }

func ownerOf(j *train.Job) owner { return owner{j.Spec.Tenant, j.Spec.User, j.Spec.Project} }

// queue is what waits of an owner's jobs.
type queue struct {
	owner
	jobs   int
	oldest time.Duration
}

func (q *queue) labels() []string { return q.owner.labels() }

// waits reports whether a job waits for devices, and not for people or other jobs.
func waits(j *train.Job) bool {
	withheld := j.State == train.StateHeld || j.State == train.StatePaused || len(j.Awaits()) > 0
	return !j.State.Terminal() && !j.State.Active() && !withheld && j.Spec.Array == ""
}

// queues returns what waits of at most a number of owners, the longest first, and how many more owners there are.
func queues(x *index.Index, most int, now time.Time) (all []*queue, left int) {
	of := map[owner]*queue{}
	for _, j := range x.Jobs.All() {
		if !waits(j) {
			continue
		}
		q := of[ownerOf(j)]
		if q == nil {
			q = &queue{owner: ownerOf(j)}
			of[q.owner] = q
			all = append(all, q)
		}
		q.jobs++
		q.oldest = max(q.oldest, now.Sub(j.QueuedAt()))
	}
	slices.SortFunc(all, func(a, b *queue) int {
		return cmp.Or(cmp.Compare(b.jobs, a.jobs), slices.Compare(a.labels(), b.labels()))
	})
	shown := min(len(all), most)
	return all[:shown], len(all) - shown
}

func queueMetrics() []metric[queue] {
	return []metric[queue]{
		{
			name: "switchyard_queue_jobs", help: "Jobs that wait for devices.", kind: prometheus.GaugeValue,
			of: func(q *queue, put func(float64, ...string)) { put(float64(q.jobs)) },
		},
		{
			name: "switchyard_queue_oldest_seconds", help: "How long the oldest of them has waited.", kind: prometheus.GaugeValue,
			of: func(q *queue, put func(float64, ...string)) { put(q.oldest.Seconds()) },
		},
	}
}
