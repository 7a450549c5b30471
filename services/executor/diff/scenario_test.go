package diff

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// TestScenarios plays the files in testdata/scenarios. A block is a list of events, one per line, and then what the
// executor does about them:
//
//	job a [epochs=3] [max_restarts=1] [retries=2]   a job is admitted; `overheard`: its epochs are read from its output
//	      [minutes=120]                    its time limit; `a may run 3h`: it is another one now
//	plan 2: a on gpu:0,gpu:1; b on gpu:2   a plan arrives; `a on gpu:0/6` is 6 of 16 GiB of a device,
//	                                       `waits c (why)` gives a reason
//	a reports epochs=2 [answered] [spoke] [ended=finished] [read]   read: all of its output was read
//	a reports step=30 of=900 each=2        it is so far in its epoch
//	a reports saved=30                     a checkpoint in its epoch
//	a reports [found] signal=SIGUSR1       its code calls nothing; found: its supervisor found a checkpoint
//	a exits [with 3 | by SIGKILL | lost | forced | says .. | imageless | out of memory|disk]
//	a is in trouble: CODE what happened     a pod fails: the rest has to end, and the attempt is lost
//	a never runs: CODE what happened        likewise, and not all of it ran
//	cluster n1 n2                          the executor is that of a cluster; plans say `a on gpu:0@n1,gpu:0@n2`
//	n2 goes                                its agent is silent
//	a takes another start: WHY              its wanted system parameters need a restart; `a takes no other start`
//	a is cancelled
//	a is wanted paused|held|run [force] [requeue]
//	10m pass
//	clock is 48h ahead                     records written from now on have such times
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, filepath.Join("testdata", "scenarios"), func(t *testing.T, path string) {
		w := newWorld()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			for line := range strings.Lines(d.Input) {
				note, err := w.happen(strings.Fields(line))
				if err != nil {
					d.Fatalf(t, "%s: %v", strings.TrimSpace(line), err)
				}
				out.WriteString(note)
			}
			done, err := w.settle()
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			if len(done) == 0 {
				done = []string{"nothing"}
			}
			out.WriteString(strings.Join(done, "\n") + "\n")
			return out.String()
		})
	})
}

// happen applies one line of a scenario.
func (w *world) happen(words []string) (string, error) {
	if len(words) < 2 {
		return "", fmt.Errorf("cannot read %q", words)
	}
	if known, output, err := w.happenAround(words); known || err != nil {
		return output, err
	}
	if !w.happenTo(train.JobID(words[0]), words[1], words) {
		return "", fmt.Errorf("cannot read %q", words)
	}
	return "", nil
}

// happenAround applies a line about jobs that arrive, plans, nodes or time.
func (w *world) happenAround(words []string) (known bool, output string, err error) {
	switch {
	case words[0] == "job":
		w.admit(words)
	case words[0] == "cluster":
		w.Realm = Realm{Realm: train.Realm{Backend: train.BackendKubernetes}, Nodes: map[train.NodeID]train.Node{}}
		for _, n := range words[1:] {
			w.Realm.Nodes[train.NodeID(n)] = machine(train.NodeID(n))
		}
	case words[1] == "goes":
		delete(w.Realm.Nodes, train.NodeID(words[0]))
	case words[0] == "plan":
		p, err := parsePlan(words[1:])
		if err == nil && !w.accept(p) {
			output = fmt.Sprintf("plan %d is refused\n", p.Generation)
		}
		return true, output, err
	case words[1] == "pass":
		d, err := time.ParseDuration(words[0])
		w.Now = w.Now.Add(d)
		return true, "", err
	case words[0] == "clock":
		step, err := time.ParseDuration(words[2])
		if words[3] == "behind" {
			step = -step
		}
		w.step = step
		return true, "", err
	default:
		return false, "", nil
	}
	return true, "", nil
}

func (w *world) admit(words []string) {
	job := train.Job{ID: train.JobID(words[1]), State: train.StateQueued, Spec: train.Spec{MaxEpochs: number(words, "epochs", 10)}.WithDefaults()}
	job.Spec.TimeLimit = unit.Duration(number(words, "minutes", 0)) * unit.Duration(time.Minute)
	restarts := number(words, "max_restarts", train.DefaultMaxRestarts)
	job.Spec.MaxRestarts = &restarts
	if retries := number(words, "retries", -1); retries >= 0 {
		job.Spec.Retries = &retries
	}
	job.Spec.RestartSilent = slices.Contains(words, "restart_silent")
	if slices.Contains(words, "overheard") {
		job.Spec.LogFormat = train.LogBigDL
	}
	w.Jobs[job.ID] = job
}

// happenTo applies a line about a job; it returns false if there is no such verb.
func (w *world) happenTo(id train.JobID, verb string, words []string) bool {
	job, key := w.Jobs[id], ReportKey{id, w.Attempts[id].Number}
	defer func() {
		if job.ID != "" {
			w.Jobs[id] = job
		}
	}()
	switch verb {
	case "is":
		switch words[2] {
		case "cancelled":
			job.CancelRequested = true
		case "wanted":
			w.want(&job, train.Wanted{State: train.Want(words[3]), Force: slices.Contains(words, "force"), By: "ann"}, slices.Contains(words, "requeue"))
		default:
			w.trouble(id, train.Exit{Lost: true, Reason: train.Reason{Code: words[4], Message: strings.Join(words[5:], " ")}})
		}
	case "never":
		w.trouble(id, train.Exit{Lost: true, Unstarted: true, Reason: train.Reason{Code: words[3], Message: strings.Join(words[4:], " ")}})
	case "takes":
		w.Retunes[key] = train.Reason{}
		if words[2] == "another" {
			w.Retunes[key] = train.Reason{Code: "Retuned", Message: strings.Join(words[4:], " ")}
		}
	case "reports":
		w.reports(id, words[2:])
		if w.Attempts[id].Number > 0 {
			job.EpochsDone = max(job.EpochsDone, number(words, "epochs", 0)) // as the register does
		}
	case "exits":
		w.exit(id, exitOf(words[2:]))
	case "converges":
		job.ConvergedEpochs = number(words, "epochs", 1)
	case "may":
		job.Spec.TimeLimit, _ = unit.ParseDuration(words[3])
	case "overspends":
		job.Overspent = "it has cost 9 J"
	default:
		return false
	}
	return true
}

func (w *world) reports(id train.JobID, words []string) {
	a := w.Attempts[id]
	r := w.Reports[ReportKey{id, a.Number}]
	r.Job, r.Attempt, r.Spoke = id, a.Number, w.Jobs[id].Spec.LogFormat == ""
	r.EpochsDone = number(words, "epochs", r.EpochsDone)
	if step := number(words, "step", -1); step >= 0 {
		seen := train.Steps{Epoch: r.EpochsDone, Done: step, Seconds: float64(number(words, "each", 1)), At: w.Now}
		w.StepsSeen[ReportKey{id, a.Number}] = seen
		r.Steps = train.Steps{Epoch: r.EpochsDone, Done: step, Of: number(words, "of", 0), Seconds: float64(number(words, "each", 1)), At: w.Now.Add(w.step)}
	}
	if step := number(words, "saved", -1); step >= 0 {
		r.Checkpoint, r.CheckpointEpochs, r.CheckpointStep = "x", r.EpochsDone, step
	}
	if epochs := number(words, "holds", -1); epochs >= 0 {
		r.Checkpoint, r.CheckpointEpochs = "x", epochs
	}
	for _, word := range words {
		switch {
		case word == "answered":
			r.StopAnswered = true
		case word == "found":
			r.Checkpoint, r.FoundCheckpoint = "x", true
		case strings.HasPrefix(word, "signal="):
			r.Signal, r.Spoke = strings.TrimPrefix(word, "signal="), false
		case word == "read":
			r.OutputRead = true
		case strings.HasPrefix(word, "ended="):
			r.Ended = strings.TrimPrefix(word, "ended=")
		}
	}
	w.Reports[ReportKey{id, a.Number}] = r
}

func number(words []string, name string, otherwise int) int {
	for _, word := range words {
		if value, found := strings.CutPrefix(word, name+"="); found {
			if n, err := strconv.Atoi(value); err == nil {
				return n
			}
		}
	}
	return otherwise
}

func exitOf(words []string) train.Exit {
	switch {
	case len(words) == 0:
		return train.Exit{}
	case words[0] == "with":
		return train.Exit{Code: number([]string{"n=" + words[1]}, "n", 1)}
	case words[0] == "by":
		return train.Exit{Signal: words[1]}
	case words[0] == "forced":
		return train.Exit{Forced: true}
	case words[0] == "imageless":
		return train.Exit{Code: 127, Reason: train.Reason{Code: "ImageMissing", Message: "image x is not on node n1", Hint: "load it"}}
	case words[0] == "out" && words[2] == "disk":
		return train.Exit{Code: 1, LogTail: "OSError: [Errno 28] No space left on device"}
	case words[0] == "out":
		return train.Exit{Code: 1, LogTail: "torch.OutOfMemoryError: CUDA out of memory."}
	case words[0] == "says":
		return train.Exit{Code: 127, Message: strings.Join(words[1:], " ")}
	default:
		return train.Exit{Lost: true}
	}
}

func parsePlan(words []string) (train.Plan, error) {
	generation, err := strconv.ParseUint(strings.TrimSuffix(words[0], ":"), 10, 64)
	p := train.Plan{Generation: generation}
	for part := range strings.SplitSeq(strings.Join(words[1:], " "), ";") {
		fields := strings.Fields(part)
		switch {
		case len(fields) == 3 && fields[1] == "on":
			p.Allocations = append(p.Allocations, allocation(fields[0], fields[2]))
		case len(fields) > 2 && fields[0] == "waits":
			why := strings.Trim(strings.Join(fields[2:], " "), "()")
			p.Waiting = append(p.Waiting, train.Waiting{Job: train.JobID(fields[1]), Blockers: []train.Reason{{Code: "Test", Message: why}}})
		case len(fields) > 0:
			return p, fmt.Errorf("cannot read %q", part)
		}
	}
	return p, err
}

// allocation parses `gpu:0,gpu:1` of the only node, `gpu:0@n1,gpu:0@n2`, or `gpu:0,gpu:1/6` for 6 GiB of each device.
func allocation(job, devices string) train.Allocation {
	a := train.Allocation{Job: train.JobID(job)}
	if device, part, shared := strings.Cut(devices, "/"); shared {
		gib, _ := strconv.Atoi(part)
		devices, a.Memory = device, unit.Bytes(gib)*unit.GiB
	}
	for word := range strings.SplitSeq(devices, ",") {
		device, node, named := strings.Cut(word, "@")
		if !named {
			node = "n1"
		}
		if last := len(a.Parts) - 1; last >= 0 && a.Parts[last].Node == train.NodeID(node) {
			a.Parts[last].Devices = append(a.Parts[last].Devices, train.DeviceID(device))
			continue
		}
		a.Parts = append(a.Parts, train.Part{Node: train.NodeID(node), Devices: []train.DeviceID{train.DeviceID(device)}})
	}
	if len(a.Parts) == 1 {
		a.Node, a.Devices, a.Parts = a.Parts[0].Node, a.Parts[0].Devices, nil
	}
	return a
}
