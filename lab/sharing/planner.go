package sharing

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

const (
	// deviceMemory is the memory of a device, by which declared fractions become bytes.
	deviceMemory = 16 * unit.GiB
	// epochSeconds is about how long an epoch lasts alone: jobs leave their devices at the end of one.
	epochSeconds = 60
)

// PlannerNames are the policies under which RunPlanner plays streams: those of the live planner, with this prefix.
func PlannerNames() []string {
	var names []string
	for _, name := range plan.PolicyNames() {
		names = append(names, plannerPrefix+name)
	}
	return names
}

const plannerPrefix = "planner-"

// Gangs says which jobs of a stream need a device on each of several nodes, where they take as long alone. Whole says
// that they share none.
type Gangs struct {
	Kinds []curve.Kind
	Nodes int
	Whole bool
}

// of is the number of nodes that a kind of job needs.
func (g Gangs) of(kind curve.Kind) int {
	if slices.Contains(g.Kinds, kind) {
		return g.Nodes
	}
	return 1
}

// RunPlanner plays a stream on a number of equal devices in the planner's own simulator, with all phases of its
// decisions: the jobs are recorded ones that allow sharing, the planner knows the measured rates of all pairs, and
// jobs run at the rates that it predicts from them. A job leaves its device at the end of an epoch only. interval is
// the time between decisions in seconds. Evictions counts all restarts.
func RunPlanner(jobs []Job, gangs Gangs, table Table, devices int, name string, interval float64) (Result, error) {
	policy, err := plan.Find(strings.TrimPrefix(name, plannerPrefix))
	if err != nil {
		return Result{}, err
	}
	s := Result{}
	held, beside := map[train.JobID]float64{}, map[train.JobID]train.JobID{}
	c := simulation(jobs, gangs, table, devices, policy, interval)
	c.Watch = func(t sim.Tick) bool {
		if t.Plan == nil {
			return true
		}
		for _, a := range t.Plan.Allocations {
			held[a.Job] += interval
			if a.Beside != "" && beside[a.Job] != a.Beside {
				s.CoLocations++
			}
			beside[a.Job] = a.Beside
		}
		return true
	}
	r, err := sim.Run(c)
	if err != nil {
		return Result{}, err
	}
	for i, a := range c.Workload.Jobs {
		s.MeanSlowdown += held[a.Name] / jobs[i].AloneSeconds / float64(len(jobs))
	}
	s.AvgJCTSeconds, s.P99JCTSeconds, s.MakespanSeconds, s.Evictions = r.AvgJCTSeconds, r.P99JCTSeconds, r.MakespanSeconds, r.Restarts
	if r.Completed < len(jobs) {
		return s, fmt.Errorf("play a stream under %s: %d of %d jobs completed", name, r.Completed, len(jobs))
	}
	return s, nil
}

func simulation(jobs []Job, gangs Gangs, table Table, devices int, policy plan.Policy, interval float64) sim.Config {
	c := sim.Config{
		Workload: sim.Workload{Name: "stream"}, Nodes: sim.Nodes([]sim.Pool{{Nodes: devices, Devices: 1, Memory: deviceMemory}}),
		Policy: policy, IntervalSeconds: interval,
	}
	for i, j := range jobs {
		c.Workload.Jobs = append(c.Workload.Jobs, sim.Arrival{
			Name: train.JobID(fmt.Sprintf("j%04d", i)), Seconds: j.ArrivalSeconds, Source: table.recorded(j, gangs),
		})
	}
	key := curve.InterferenceKey(&c.Nodes[0].Devices[0])
	c.State.Interference = map[string]*curve.Interference{key: table.interference(gangs)}
	return c
}

// recorded is a job whose epochs were seen to take equally long.
func (t Table) recorded(j Job, gangs Gangs) *sim.Recorded {
	epochs := max(int(math.Round(j.AloneSeconds/epochSeconds)), 1)
	r := &sim.Recorded{Spec: t.spec(j.Kind), Priority: train.DefaultPriority, Epochs: epochs}
	nodes := gangs.of(j.Kind)
	r.Spec.MaxEpochs, r.Spec.AllowSharing = epochs, nodes == 1 || !gangs.Whole
	r.Spec.MinDevices, r.Spec.MaxDevices, r.Spec.TrainingSetSize = nodes, nodes, nodes*r.Spec.BatchSize
	seen := curve.EpochRecord{
		Epoch: 1, Seconds: j.AloneSeconds / float64(epochs), Config: train.Config{Workers: nodes, Nodes: nodes, LocalBatch: r.Spec.BatchSize}, Steps: 1,
	}
	r.Seen = []sim.RecordedEpoch{{EpochRecord: seen}}
	return r
}

// spec returns what the user of a kind of job submits.
func (t Table) spec(kind curve.Kind) train.Spec {
	batch := max(kind.LocalBatch, 1)
	return train.Spec{
		Name: kind.Family, Command: []string{kind.Family}, BatchSize: batch, TrainingSetSize: batch, MinDevices: 1, MaxDevices: 1,
		AllowSharing: true, EstimatedMemoryMiB: max(int64(t.Memory[kind]*float64(deviceMemory>>20)), 1),
	}.WithDefaults()
}

// interference holds the measured rates of all pairs, by the kinds that the planner sees. What a job does to another
// on a device is assumed to be the same if either has further devices.
func (t Table) interference(gangs Gangs) *curve.Interference {
	type seen struct{ measured, planned curve.Kind }
	var all []seen
	for _, kind := range t.Kinds() {
		all = append(all, seen{kind, curve.KindOf(t.spec(kind))})
	}
	for _, kind := range gangs.Kinds {
		all = append(all, seen{kind, curve.KindOf(t.spec(kind)).On(gangs.Nodes, gangs.Nodes)})
	}
	known := curve.NewInterference("", nil)
	for i, a := range all {
		for _, b := range all[i:] {
			x, measured := t.Rates[curve.KindPair{Self: a.measured, Beside: b.measured}]
			y := t.Rates[curve.KindPair{Self: b.measured, Beside: a.measured}]
			switch {
			case !measured:
			case x > 0 && y > 0:
				known.Shared(a.planned, b.planned, x, y)
			default:
				known.OutOfMemory(a.planned, b.planned)
			}
		}
	}
	return known
}
