package experiments

import (
	"context"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/conduct"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// profilePatience is how long to wait for measurements: after the end of an interval for its measurement to be stored,
// and after a trial's first epoch for any at all.
const profilePatience = time.Minute

// profileOf combines the nodes' measurements of a job between two times; false if there is no interval of it yet.
func (c *conductor) profileOf(ctx context.Context, job train.JobID, from, to time.Time) (contract.TrialProfile, bool, error) {
	var p profiling
	p.job = job
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
	return p.mean(), true, nil
}

// profiling sums intervals in which a job ran.
type profiling struct {
	job     train.JobID
	seconds float64
	// work is the job's use of each component: seconds of processors and of GPUs.
	work map[string]float64
	// counted holds the performance counters of nodes on which it ran alone, in countedSeconds.
	counted        map[string]float64
	countedSeconds float64
}

func (p *profiling) add(m event.Measured) {
	used, others := false, false
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
		p, ok, err := c.profileOf(ctx, t.Job, from, to)
		if err != nil {
			return nil, err
		}
		if ok || c.now().Sub(t.Done[0].At).Abs() > profilePatience {
			found[t.Job] = p
		}
	}
	return found, nil
}
