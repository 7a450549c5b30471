package experiments

import (
	"context"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/conduct"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// profilePatience is how long to wait for measurements: after the end of an interval for its measurement to be stored,
// and after a trial's first epoch for any at all.
const profilePatience = time.Minute

// profileOf combines the nodes' measurements of a job between two times; false if there is no interval of it yet. If
// the experiment names nodes, only those count: the job's own node has just the driver of a Spark program.
func (c *conductor) profileOf(ctx context.Context, e contract.Experiment, job train.JobID, from, to time.Time) (contract.TrialProfile, bool, error) {
	p := profiling{job: job, nodes: map[train.NodeID]bool{}}
	if e.Power != nil {
		p.only = e.Power.Nodes
	}
	filter := filters("energy", event.FactMeasured)
	err := c.bus.StoredWhile(ctx, event.StreamSamples, filter, from.Add(-time.Second), func(m bus.Message) bool {
		measured, err := event.Decode[event.Measured](m.Data)
		if err == nil && !measured.From.Before(from) && !measured.To.After(to) {
			p.add(measured)
		}
		return m.Stored.Before(to.Add(profilePatience))
	})
	if err != nil || p.seconds == 0 {
		return contract.TrialProfile{}, false, err
	}
	mean := p.mean()
	if slices.ContainsFunc(e.System, func(f contract.Factor) bool { return f.Name == file.Cores && f.AtStart }) {
		mean.BusyCores *= float64(len(p.nodes)) // such cores are those of the whole program
	}
	return mean, true, nil
}

// profiling sums intervals in which a job ran.
type profiling struct {
	job train.JobID
	// only are the names of the nodes that count, all if there are none; nodes are those on which the job was found.
	only    []string
	nodes   map[train.NodeID]bool
	seconds float64
	// work is the job's use of each component: seconds of processors and of GPUs.
	work map[string]float64
	// counted holds the performance counters of nodes on which it ran alone, in countedSeconds.
	counted        map[string]float64
	countedSeconds float64
}

func (p *profiling) add(m event.Measured) {
	used, others := false, false
	if len(p.only) > 0 && !slices.ContainsFunc(p.only, m.Node.Answers) {
		return
	}
	for _, u := range m.Users {
		if u.Job != p.job {
			others = true
			continue
		}
		if p.work == nil {
			p.work, p.counted = map[string]float64{}, map[string]float64{}
		}
		used = true
		p.work[u.Component] += u.Work
	}
	if !used {
		return
	}
	p.nodes[m.Node] = true
	p.seconds += m.To.Sub(m.From).Seconds()
	if !others && m.CountersSeconds > 0 {
		p.countedSeconds += m.CountersSeconds
		for name, n := range m.Counters {
			p.counted[name] += n
		}
	}
}

// mean returns rates, without those that a node cannot measure.
func (p *profiling) mean() contract.TrialProfile {
	busy := p.work[event.ComponentCPU] / p.seconds
	s := contract.Signature{"busy_cores": busy}
	if gpu, ok := p.work[event.ComponentGPU]; ok {
		s["busy_gpus"] = gpu / p.seconds
	}
	for name, n := range p.counted {
		s[name] = n / p.countedSeconds
	}
	return contract.TrialProfile{BusyCores: busy, Signature: s}
}

// profilesOf returns the profiles of running trials that have trained an epoch and have none. Without measurements a
// trial gets an empty profile, and is not looked up again.
func (c *conductor) profilesOf(ctx context.Context, r conduct.Record) (map[train.JobID]contract.TrialProfile, error) {
	found := map[train.JobID]contract.TrialProfile{}
	for i := range r.Trials {
		t := &r.Trials[i]
		if t.State != search.Running || t.Profile != nil || len(t.Done) == 0 || len(r.Experiment.System) == 0 {
			continue
		}
		from, to := conduct.FirstSetting(t)
		p, ok, err := c.profileOf(ctx, r.Experiment, t.Job, from, to)
		if err != nil {
			return nil, err
		}
		if ok || c.now().Sub(t.Done[0].At).Abs() > profilePatience {
			found[t.Job] = p
		}
	}
	return found, nil
}
