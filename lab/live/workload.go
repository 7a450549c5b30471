// Package live compares what the services do with what the simulator says that they do: the same jobs, replayed from
// published measurements by a trainer that waits, on a real bus and in virtual time. Time runs faster in both by a
// factor, and so do all settings that are times. This package says what is run and what is compared; package cluster
// runs it, and package trainer is the training code.
package live

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/switchyard-dl/switchyard/lab/traces"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Job is a job of the workload: when its user submits it, and what is submitted.
type Job struct {
	ID      train.JobID
	Seconds float64
	Spec    train.Spec
	// Application is whose training it replays.
	Application *traces.Application
}

// Plan is what is run under each policy.
type Plan struct {
	Applications map[string]*traces.Application
	Arrivals     []traces.Arrival
	// Nodes have DevicesPerNode devices each.
	Nodes int
	// Factor is how much faster time runs than in the measurements.
	Factor float64
	// Trainer is the command of the replaying program, up to the words that Command adds.
	Trainer []string
}

// DevicesPerNode is the size of the machines on which the step times were measured.
const DevicesPerNode = 4

// PublishedStartSeconds is the price of a start in the simulator published with Pollux, before the factor.
const PublishedStartSeconds = 30

// EveryFourth takes every fourth job, from the first on, of each workload and keeps the arrivals.
func EveryFourth(all ...traces.Workload) []traces.Arrival {
	var thinned []traces.Workload
	for _, w := range all {
		kept := traces.Workload{Name: w.Name}
		for i := 0; i < len(w.Jobs); i += 4 {
			kept.Jobs = append(kept.Jobs, w.Jobs[i])
		}
		thinned = append(thinned, kept)
	}
	return traces.Union("every fourth", thinned...).Jobs
}

// First takes the first jobs to arrive; all, if count is 0.
func First(all []traces.Arrival, count int) []traces.Arrival {
	sorted := slices.SortedStableFunc(slices.Values(all), func(x, y traces.Arrival) int { return cmp.Compare(x.Seconds, y.Seconds) })
	if count > 0 && count < len(sorted) {
		sorted = sorted[:count]
	}
	return sorted
}

// Jobs are the submissions under a policy. Under fifo and srtf a job asks for what its user asked for; optimus
// may choose the number of devices, and switchyard the global batch, too.
func (p Plan) Jobs(policy string) ([]Job, error) {
	var all []Job
	for _, a := range p.Arrivals {
		app, known := p.Applications[a.Application]
		if !known {
			return nil, fmt.Errorf("job %s: there are no measurements of application %q", a.Name, a.Application)
		}
		all = append(all, Job{ID: a.Name, Seconds: a.Seconds / p.Factor, Spec: p.spec(policy, a, app), Application: app})
	}
	return all, nil
}

// spec is what admission makes of the submission.
func (p Plan) spec(policy string, a traces.Arrival, app *traces.Application) train.Spec {
	l := app.Limits
	most := max(min(l.MaxBatch/l.MinLocal, p.Nodes*DevicesPerNode), 1)
	if app.OneDevice {
		most = 1
	}
	s := train.Spec{
		Name: string(a.Name), Command: p.command(a.Application), TrainingSetSize: app.Course("").TrainingSetSize(), MaxEpochs: app.Epochs,
		MinDevices: 1, MaxDevices: most, Strategy: train.StrategyAllReduce, BatchSize: l.MaxLocal, GlobalBatchSize: a.Batch,
	}
	switch policy {
	case "fifo", "srtf":
		s.MinDevices = min(max(a.Devices, 1), most)
		s.MaxDevices = s.MinDevices
	case "optimus":
		s.MaxDevices = min(most, max(a.Batch, 1))
	default:
		s.GlobalBatchSize, s.AdaptiveBatch = l.BaseBatch, app.Adaptive()
	}
	return s.WithDefaults().WithGlobalBatch()
}

func (p Plan) command(application string) []string {
	return append(slices.Clone(p.Trainer), "--application", application, "--factor", strconv.FormatFloat(p.Factor, 'g', -1, 64))
}
