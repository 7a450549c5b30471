package traces

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/lab/rows"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// recorded is a job of a cluster's trace: what it asked for and how long it ran, of what it did nothing is known.
type recorded struct {
	at, seconds float64
	devices     int
}

// Recorded makes a workload of the first jobs of a published trace, by its shape: the cluster_job_log of Philly
// (Microsoft, JSON), or of Alibaba the openb_pod_list of 2023 or the pai_task_table of 2020 (CSV). Arrivals and GPUs
// are those of the trace. What jobs train is not in it: as for Pollux, an application of the same class of GPU time is
// drawn. Jobs that asked for no GPU or never ran are left out.
func Recorded(name string, data []byte, jobs int, mix string, seed uint64) (Workload, error) {
	if !slices.Contains(MixNames(), mix) {
		return Workload{}, fmt.Errorf("read trace %s: no mix %q, only %v", name, mix, MixNames())
	}
	all, err := parseRecorded(name, data)
	if err != nil {
		return Workload{}, err
	}
	all = slices.DeleteFunc(all, func(r recorded) bool { return r.devices < 1 || !(r.seconds > 0) })
	if len(all) == 0 {
		return Workload{}, fmt.Errorf("read trace %s: there is no job in it that ran on a GPU", name)
	}
	slices.SortStableFunc(all, func(a, b recorded) int { return cmp.Compare(a.at, b.at) })
	all = all[:min(len(all), max(jobs, 1))]
	draw, w := rand.New(rand.NewPCG(seed, 0)), Workload{Name: name}
	for i, r := range all {
		a := r.arrival(draw, mix)
		a.Name, a.Seconds = train.JobID(fmt.Sprintf("%s-%d", a.Application, i)), r.at-all[0].at
		if a.Seconds >= sim.Longest {
			break
		}
		w.Jobs = append(w.Jobs, a)
	}
	return w, nil
}

// arrival draws what a recorded job trains.
func (r recorded) arrival(draw *rand.Rand, mix string) Arrival {
	if mix == "sharing" {
		return Arrival{Application: pick(draw, sharingMix()), Devices: 1, Batch: 1}
	}
	application, profiles := pick(draw, classMix(r.seconds*float64(r.devices)/3600)), Profiles()
	p := profiles[slices.IndexFunc(profiles, func(p Profile) bool { return p.Name == application })]
	devices := min(r.devices, mostAsked)
	if p.OneDevice {
		devices = 1
	}
	return Arrival{Application: p.Name, Devices: devices, Batch: min(p.Limits.BaseBatch*devices, p.Limits.MaxBatch)}
}

// classMix are the applications of a class of GPU time in hours (Pollux, OSDI'21, table 1).
func classMix(hours float64) []share[string] {
	switch {
	case hours < 1:
		return []share[string]{{"cifar10", 0.5}, {"ncf", 0.5}}
	case hours < 10:
		return []share[string]{{"deepspeech2", 0.5}, {"bert", 0.5}}
	case hours < 100:
		return []share[string]{{"yolov3", 1}}
	}
	return []share[string]{{"imagenet", 1}}
}

func parseRecorded(name string, data []byte) ([]recorded, error) {
	text := bytes.TrimSpace(data)
	first, _, _ := strings.Cut(string(text[:min(len(text), 400)]), "\n")
	switch columns := strings.Split(strings.TrimSpace(first), ","); {
	case bytes.HasPrefix(text, []byte("[")):
		return parsePhilly(name, text)
	case slices.Contains(columns, "num_gpu") && slices.Contains(columns, "creation_time"):
		return parsePods(name, text)
	case slices.Contains(columns, "plan_gpu"):
		return parseTasks(name, text)
	case len(columns) == strings.Count(taskHeader, ",")+1: // it is published with its header in a file of its own
		return parseTasks(name, append([]byte(taskHeader+"\n"), text...))
	}
	return nil, fmt.Errorf("read trace %s: want Philly's cluster_job_log, or Alibaba's openb_pod_list or pai_task_table", name)
}

// taskHeader is Alibaba's pai_task_table.header.
const taskHeader = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type"

// parsePhilly reads a list of jobs with their attempts. A job ran as long as all its attempts, on the GPUs of the last.
func parsePhilly(name string, text []byte) ([]recorded, error) {
	var jobs []struct {
		Submitted string `json:"submitted_time"`
		Attempts  []struct {
			Start  string `json:"start_time"`
			End    string `json:"end_time"`
			Detail []struct {
				GPUs []string `json:"gpus"`
			} `json:"detail"`
		} `json:"attempts"`
	}
	if err := json.Unmarshal(text, &jobs); err != nil {
		return nil, fmt.Errorf("read trace %s: %w", name, err)
	}
	all := make([]recorded, 0, len(jobs))
	for i, j := range jobs {
		at, err := time.Parse(time.DateTime, j.Submitted)
		if err != nil {
			return nil, fmt.Errorf("read trace %s: job %d: %w", name, i, err)
		}
		r := recorded{at: float64(at.Unix())}
		for _, a := range j.Attempts {
			start, err := time.Parse(time.DateTime, a.Start)
			end, err2 := time.Parse(time.DateTime, a.End)
			if err != nil || err2 != nil { // some never started, some never ended: their times are empty or None
				continue
			}
			r.seconds, r.devices = r.seconds+end.Sub(start).Seconds(), 0
			for _, server := range a.Detail {
				r.devices += len(server.GPUs)
			}
		}
		all = append(all, r)
	}
	return all, nil
}

// parsePods reads pods, which came and went at times in seconds.
func parsePods(name string, text []byte) ([]recorded, error) {
	table, err := rows.Parse(name, text, "num_gpu", "creation_time", "deletion_time", "scheduled_time")
	if err != nil {
		return nil, err
	}
	var all []recorded
	for _, row := range table {
		if row.Text("scheduled_time") == "" {
			continue // it never ran
		}
		x, err := row.Numbers("num_gpu", "creation_time", "deletion_time", "scheduled_time")
		if err != nil {
			return nil, err
		}
		all = append(all, recorded{at: x[1], seconds: x[2] - x[3], devices: int(x[0])})
	}
	return all, nil
}

// parseTasks reads tasks of several equal instances. What they plan of GPUs is in hundredths of one; a job that shares
// a GPU counts as one of a whole GPU. When they were submitted is not in the table: they come when they started.
func parseTasks(name string, text []byte) ([]recorded, error) {
	table, err := rows.Parse(name, text, "inst_num", "start_time", "end_time", "plan_gpu")
	if err != nil {
		return nil, err
	}
	var all []recorded
	for _, row := range table {
		if row.Text("plan_gpu") == "" || row.Text("start_time") == "" || row.Text("end_time") == "" {
			continue
		}
		x, err := row.Numbers("inst_num", "start_time", "end_time", "plan_gpu")
		if err != nil {
			return nil, err
		}
		const whole = 100
		all = append(all, recorded{at: x[1], seconds: x[2] - x[1], devices: int(math.Ceil(x[0] * x[3] / whole))})
	}
	return all, nil
}
