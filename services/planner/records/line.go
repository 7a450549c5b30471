package records

import (
	"cmp"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

const (
	// Weighed is how many waiting jobs a decision weighs at least. In a larger cluster it is twice the devices, so that
	// what could start at once is always weighed.
	Weighed = 1000
	// WeighedOfKind is how many of those behind are weighed beside them of each kind of request: devices that no job at
	// the front can use are not left idle.
	WeighedOfKind = 16
)

// line is the waiting jobs that nothing but a lack of devices keeps from a start.
type line struct {
	jobs     []place
	balances map[string]state.Balance
}

// place is a job with what orders it in the queue.
type place struct {
	job         *train.Job
	priority    int
	overuse     float64
	queuedNanos int64
}

func (l *line) add(j *train.Job) {
	l.jobs = append(l.jobs, place{j, j.EffectivePriority(), l.balances[j.Spec.Tenant].Overuse(), j.QueuedAt().UnixNano()})
}

func inQueue(x, y place) int {
	if x.priority != y.priority {
		return cmp.Compare(y.priority, x.priority)
	}
	if x.overuse != y.overuse {
		return cmp.Compare(x.overuse, y.overuse)
	}
	if x.queuedNanos != y.queuedNanos {
		return cmp.Compare(x.queuedNanos, y.queuedNanos)
	}
	return cmp.Compare(x.job.ID, y.job.ID)
}

// cut orders a line that is longer than front, and returns the jobs that a decision weighs and those behind them. Both
// are in the order of the queue, which cluster.InQueue defines.
func (l *line) cut(front int) (weighed []*train.Job, behind []train.JobID) {
	if len(l.jobs) <= front {
		for _, p := range l.jobs {
			weighed = append(weighed, p.job)
		}
		return weighed, nil
	}
	slices.SortFunc(l.jobs, inQueue)
	of := map[kind]int{}
	for i, p := range l.jobs {
		if i >= front {
			k := kindOf(&p.job.Spec)
			if of[k]++; of[k] > WeighedOfKind || len(weighed) >= 2*front {
				behind = append(behind, p.job.ID)
				continue
			}
		}
		weighed = append(weighed, p.job)
	}
	return weighed, behind
}

// awaitsDevices says whether nothing but a lack of devices keeps a job that holds none from a start, as far as its
// record says.
func awaitsDevices(j *train.Job) bool {
	postponable := j.Spec.Energy != nil && j.Spec.Energy.StartBy != nil
	return j.Wants() == train.WantRun && len(j.Awaits()) == 0 && !postponable
}

// kind holds what decides where and when a job may run, and under which quota: jobs of one kind find the same devices.
type kind struct {
	tenant, gpu, labels                        string
	array                                      train.JobID
	device                                     train.DeviceKind
	strategy                                   train.Strategy
	least, most, cores                         int
	memoryMiB, mainMemoryMiB                   int64
	servers                                    train.ServersSpec
	single, shares, shuns, adaptive, perDevice bool
	acrossTenants                              bool
}

func kindOf(spec *train.Spec) kind {
	s := spec.Expanded()
	k := kind{
		tenant: s.Tenant, gpu: s.GPU, device: s.Device, strategy: s.Strategy, least: s.MinDevices, most: s.MaxDevices, cores: s.Cores,
		memoryMiB: s.EstimatedMemoryMiB, mainMemoryMiB: s.MainMemoryMiB, single: s.SingleDevice, shares: s.AllowSharing, shuns: s.DisableSharing,
		adaptive: s.AdaptiveBatch != nil, perDevice: s.Launch == train.LaunchPerDevice, acrossTenants: s.ShareAcrossTenants,
	}
	if m := s.ArrayMember; m != nil && m.AtOnce > 0 {
		k.array = m.Array
	}
	if len(s.NodeLabels) > 0 {
		k.labels = train.JoinLabels(s.NodeLabels)
	}
	if s.ParameterServers != nil {
		k.servers = *s.ParameterServers
	}
	return k
}
