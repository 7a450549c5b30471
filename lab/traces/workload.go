package traces

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/lab/rows"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// Arrival is a job of a workload.
type Arrival struct {
	Name        train.JobID
	Seconds     float64
	Application string
	// Devices and Batch are what the user asks for.
	Devices, Batch int
}

// Workload is a sequence of arrivals.
type Workload struct {
	Name string
	Jobs []Arrival
}

// mostAsked bounds the devices and the batch of a request.
const mostAsked = math.MaxInt32

// ParseWorkload reads a table of arrivals.
func ParseWorkload(name string, data []byte) (Workload, error) {
	all, err := rows.Parse(name, data, "name", "time", "application", "num_replicas", "batch_size")
	if err != nil {
		return Workload{}, err
	}
	w := Workload{Name: name}
	seen := map[train.JobID]bool{}
	for _, row := range all {
		x, err := row.Numbers("time", "num_replicas", "batch_size")
		if err != nil {
			return Workload{}, err
		}
		id, err := train.ParseJobID(row.Text("name"))
		if err != nil {
			return Workload{}, fmt.Errorf("parse %s: %w", row.Where(), err)
		}
		if seen[id] {
			return Workload{}, fmt.Errorf("parse %s: second job of the name %s", row.Where(), id)
		}
		seen[id] = true
		if !(x[0] >= 0 && x[0] < sim.Longest && x[1] >= 1 && x[1] <= mostAsked && x[2] >= 1 && x[2] <= mostAsked) {
			return Workload{}, fmt.Errorf("parse %s: want a time from 0 to %d s, devices and a batch from 1 to %d", row.Where(), sim.Longest, mostAsked)
		}
		w.Jobs = append(w.Jobs, Arrival{Name: id, Seconds: x[0], Application: row.Text("application"), Devices: int(x[1]), Batch: int(x[2])})
	}
	if len(w.Jobs) == 0 {
		return Workload{}, fmt.Errorf("parse %s: there is no job in it", name)
	}
	return w, nil
}

// Union is all workloads at once. If there are several, the jobs of the k-th are renamed to wk-name.
func Union(name string, all ...Workload) Workload {
	if len(all) == 1 {
		return Workload{Name: name, Jobs: all[0].Jobs}
	}
	u := Workload{Name: name}
	for i, w := range all {
		for _, a := range w.Jobs {
			a.Name = train.JobID(fmt.Sprintf("w%d-%s", i+1, a.Name))
			u.Jobs = append(u.Jobs, a)
		}
	}
	slices.SortStableFunc(u.Jobs, func(x, y Arrival) int { return cmp.Compare(x.Seconds, y.Seconds) })
	return u
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
