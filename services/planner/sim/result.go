package sim

import (
	"cmp"
	"math"
	"slices"
)

// Result is a run in figures. Averages and percentiles are over the completed jobs.
type Result struct {
	Policy          string  `json:"policy"`
	Workload        string  `json:"workload"`
	Jobs            int     `json:"jobs"`
	Completed       int     `json:"completed"`
	AvgJCTSeconds   float64 `json:"avg_jct_seconds"`
	P50JCTSeconds   float64 `json:"p50_jct_seconds"`
	P99JCTSeconds   float64 `json:"p99_jct_seconds"`
	MakespanSeconds float64 `json:"makespan_seconds"`
	// Restarts counts the starts of all jobs after their first.
	Restarts       int     `json:"restarts"`
	GPUUtilisation float64 `json:"gpu_utilisation"`
	// WorstFinishTimeFairness is the largest ratio of a job's completion time to its time alone on its share of the
	// cluster.
	WorstFinishTimeFairness float64            `json:"worst_finish_time_fairness"`
	DecideMSP50             float64            `json:"decide_ms_p50"`
	DecideMSP99             float64            `json:"decide_ms_p99"`
	JCTs                    map[string]float64 `json:"jcts"`
	// Starts is how often each job was started.
	Starts map[string]int `json:"-"`
}

func (w *world) result() Result {
	r := Result{Policy: w.Policy.Name(), Workload: w.Workload.Name, Jobs: len(w.jobs), JCTs: map[string]float64{}, Starts: map[string]int{}}
	var jcts []float64
	sum := 0.0
	for _, j := range w.jobs {
		r.Restarts += max(j.starts-1, 0)
		r.Starts[string(j.Name)] = j.starts
		if !j.done {
			continue
		}
		jct := j.completion - j.Seconds
		jcts = append(jcts, jct)
		sum += jct
		r.JCTs[string(j.Name)] = jct
		r.MakespanSeconds = max(r.MakespanSeconds, j.completion)
	}
	r.Completed = len(jcts)
	if r.Completed == 0 {
		return r
	}
	slices.Sort(jcts)
	r.AvgJCTSeconds = sum / float64(len(jcts))
	r.P50JCTSeconds, r.P99JCTSeconds = Percentile(jcts, 0.5), Percentile(jcts, 0.99)
	r.GPUUtilisation = w.busy / w.supply(r.MakespanSeconds)
	r.WorstFinishTimeFairness = w.worstFairness()
	return r
}

// Percentile interpolates linearly between the two nearest of ascending values.
func Percentile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	x := q * float64(len(sorted)-1)
	low := int(math.Floor(x))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (sorted[high]-sorted[low])*(x-float64(low))
}

// worstFairness is the largest finish-time fairness of a completed job: its completion time over the time that it
// takes alone on its share of the cluster. The share is one part in as many as there were jobs active on average over
// its life, rounded up.
func (w *world) worstFairness() float64 {
	type share struct {
		kind    string
		devices int
	}
	worst := 0.0
	alone := map[share]float64{}
	for _, j := range w.jobs {
		if !j.done {
			continue
		}
		s := share{cmp.Or(j.Kind, string(j.Name)), w.shareOf(j)}
		if _, known := alone[s]; !known {
			alone[s] = j.training.AloneSeconds(w.nodes, s.devices)
		}
		worst = max(worst, (j.completion-j.Seconds)/alone[s])
	}
	return worst
}

// shareOf is a job's share of the cluster, in devices. It is not rounded up for the sake of a rounding error.
func (w *world) shareOf(j *job) int {
	const rounding = 1e-8
	return int(math.Ceil(float64(w.total)/max(w.meanActive(j), 1) - rounding))
}

// meanActive is the mean number of active jobs over the life of one.
func (w *world) meanActive(j *job) float64 {
	sum, count := 0.0, 0.0
	first, _ := slices.BinarySearchFunc(w.activity, j.Seconds, func(a activity, t float64) int {
		switch {
		case a.seconds < t:
			return -1
		case a.seconds > t:
			return 1
		}
		return 0
	})
	for _, a := range w.activity[first:] {
		if a.seconds >= j.completion {
			break
		}
		sum += a.jobs
		count++
	}
	if count == 0 {
		return 1
	}
	return sum / count
}
