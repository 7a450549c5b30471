package planner

import (
	"maps"
	"math"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// A planner that starts again knows what was used, also by attempts that began or ended meanwhile.
func TestARestartForgetsNoUsage(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	after := func(minutes int) time.Time { return begin.Add(time.Duration(minutes) * time.Minute) }
	attempt := func(job train.JobID, number, from, to int) train.Attempt {
		a := train.Attempt{Job: job, Number: number, Phase: train.PhaseRunning, Node: "n", Devices: []train.DeviceID{"gpu:0"}, ClaimedAt: after(from), StartedAt: after(from)}
		if to > 0 {
			a.Phase, a.ExitedAt = train.PhaseExited, after(to)
		}
		return a
	}
	type seen struct {
		at  int
		job *train.Job
		of  train.Attempt
	}
	running := func(id train.JobID, tenant string) *train.Job {
		return &train.Job{ID: id, State: train.StateRunning, Spec: train.Spec{Tenant: tenant}}
	}
	ended := func(id train.JobID, tenant string, at int) *train.Job {
		return &train.Job{ID: id, State: train.StateSucceeded, Spec: train.Spec{Tenant: tenant}, FinishedAt: after(at)}
	}
	all := []seen{
		{at: 1, job: running("a", "ann"), of: attempt("a", 1, 1, 0)},
		{at: 10, job: running("b", "bob"), of: attempt("b", 1, 10, 0)},
		{at: 20, job: running("a", "ann"), of: attempt("a", 1, 1, 20)},
		{at: 22, job: running("a", "ann"), of: attempt("a", 2, 22, 0)},
		{at: 31, job: ended("b", "bob", 31), of: attempt("b", 1, 10, 31)},
		{at: 33, job: ended("c", "eve", 33), of: attempt("c", 1, 32, 33)}, // begun and ended while no planner was there
	}
	play := func(restarts bool) map[string]float64 {
		c := newCache()
		c.usage.HalfLife, c.usage.At = 24*time.Hour, begin
		newest := map[train.JobID]seen{}
		next := 0
		for minute := range 60 {
			for ; next < len(all) && all[next].at == minute; next++ {
				s := all[next]
				newest[s.of.Job] = s
				if restarts && minute >= 30 && minute < 40 {
					continue
				}
				c.observeJob(bus.Entry[*train.Job]{Key: string(s.job.ID), Value: s.job}, false)
				for range 2 { // a watch repeats itself
					c.observeAttempt(bus.Entry[train.Attempt]{Key: string(s.of.Job), Value: s.of}, false)
				}
			}
			if restarts && minute == 40 { // what was written down is 10 minutes old
				again := newCache()
				again.usage.Usage = c.usage.Usage
				c = again
				for job, s := range newest {
					c.observeAttempt(bus.Entry[train.Attempt]{Key: string(job), Value: s.of}, false)
					c.observeJob(bus.Entry[*train.Job]{Key: string(job), Value: s.job}, false)
				}
			}
			if !restarts || minute < 30 || minute >= 40 {
				c.state(after(minute), train.Plan{}, true, plan.State{})
			}
		}
		return c.usage.DeviceSeconds
	}
	whole, restarted := play(false), play(true)
	if len(whole) != 3 || math.Abs(whole["ann"]-56*60) > 100 || math.Abs(whole["bob"]-21*60) > 60 || math.Abs(whole["eve"]-60) > 2 {
		t.Errorf("used: %v", whole)
	}
	for tenant := range maps.Keys(whole) {
		if math.Abs(whole[tenant]-restarted[tenant]) > 0.01 {
			t.Errorf("%s: %g s, with a restart %g s", tenant, whole[tenant], restarted[tenant])
		}
	}
	c := newCache()
	c.usage.HalfLife, c.usage.At, c.usage.DeviceSeconds = time.Hour, begin, whole
	noting(c, c.bounds)(bus.Entry[access.Tenant]{Key: "bob", Value: access.Tenant{Name: "bob", Bounds: access.Bounds{Shares: new(1.0)}}}, false)
	if s := c.state(begin, train.Plan{}, true, plan.State{}); s.Shares["bob"] != 1 || !(s.Balances["ann"].Overuse() > s.Balances["bob"].Overuse()) {
		t.Errorf("shares %v, balances %v", s.Shares, s.Balances)
	}
}
