package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/lab/traces"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

const exampleJobs = "../../examples/jobs"

func workloadWith(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return call(t, append([]string{"workload"}, args...)...)
}

func TestGeneratedWorkloadsAreReadBySimulator(t *testing.T) {
	args := []string{"generate", "--jobs", "40", "--gaps", "bursts", "--mean-gap", "1m", "--seed", "7"}
	code, out, errs := workloadWith(t, append(args, "-o", "csv")...)
	if code != exit.OK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	w, err := traces.ParseWorkload("drawn", []byte(out))
	if err != nil || len(w.Jobs) != 40 || !strings.HasPrefix(string(w.Jobs[0].Name), "w7-") {
		t.Errorf("%d jobs, the first %+v: %v", len(w.Jobs), w.Jobs[0], err)
	}
	if _, again, _ := workloadWith(t, append(args, "-o", "csv")...); again != out {
		t.Error("the same seed gives another workload")
	}
	if code, out, errs = workloadWith(t, args...); code != exit.OK || strings.Count(out, "\n") != 41 {
		t.Errorf("exit code %d: %s%s", code, errs, out)
	}
}

// A published trace gives a stream that the simulator reads.
func TestATraceIsAWorkload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "openb_pod_list.csv")
	text := "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\np0,1,1,1,1000,,LS,Running,10,900,10\np1,1,1,2,1000,,LS,Running,70,900,80\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := workloadWith(t, "generate", "--from", file, "-o", "csv")
	if code != exit.OK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	if w, err := traces.ParseWorkload("read", []byte(out)); err != nil || len(w.Jobs) != 2 || w.Jobs[1].Seconds != 60 {
		t.Errorf("%+v: %v", w, err)
	}
	if code, _, errs := workloadWith(t, "generate", "--from", file+".none"); code == exit.OK || !strings.Contains(errs, "--from") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

func TestGeneratedEventsAreSubmissions(t *testing.T) {
	code, out, errs := workloadWith(t, "generate", "--jobs", "60", "--job-files", exampleJobs, "-o", "json")
	if code != exit.OK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	var list []struct {
		AtSeconds float64         `json:"at_seconds"`
		Subject   string          `json:"subject"`
		Body      json.RawMessage `json:"body"`
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 60 {
		t.Fatalf("%d events: %v", len(list), err)
	}
	last := 0.0
	for _, one := range list {
		spec, reasons := event.DecodeSubmission(one.Body)
		if len(reasons) > 0 || one.Subject != "yard.job."+spec.Name+".submitted.v1" || one.AtSeconds < last || !filepath.IsAbs(spec.WorkDir) {
			t.Fatalf("event %s at %g after %g: %v", one.Subject, one.AtSeconds, last, reasons)
		}
		last = one.AtSeconds
	}
}

// Jobs whose file allows sharing keep the devices that it says, however many the stream asks for.
func TestStreamsOfJobsThatShare(t *testing.T) {
	folder := t.TempDir()
	text, err := os.ReadFile(filepath.Join(exampleJobs, "vgg16.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, application := range []string{"bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"} {
		if err := os.WriteFile(filepath.Join(folder, application+".yaml"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errs := workloadWith(t, "generate", "--jobs", "60", "--job-files", folder, "-o", "json")
	var list []struct {
		Body train.Spec `json:"body"`
	}
	if err := json.Unmarshal([]byte(out), &list); code != exit.OK || err != nil || len(list) != 60 {
		t.Fatalf("exit code %d, %d events: %v %s", code, len(list), err, errs)
	}
	for _, one := range list {
		if one.Body.SharedMemory() == 0 {
			t.Errorf("%s has %d to %d devices: it cannot share", one.Body.Name, one.Body.MinDevices, one.Body.MaxDevices)
		}
	}
}

func TestWorkloadUsage(t *testing.T) {
	for _, args := range [][]string{
		{"generate", "--jobs", "0"},
		{"generate", "--gaps", "regular"},
		{"generate", "--mean-gap", "0s"},
		{"generate", "--prefix", "a.b"},
		{"generate", "-o", "xml"},
		{"generate", "-o", "json", "--job-files", t.TempDir()},
		{"submit", "--scale", "0"},
		{"submit", "--scale", "NaN"},
	} {
		if code, out, errs := workloadWith(t, args...); code != exit.Usage || out != "" || errs == "" {
			t.Errorf("%v: exit code %d, output %q, message %q", args, code, out, errs)
		}
	}
}

// The jobs of a stream come to the bus with their ids. A job that is refused does not keep the others.
func TestWorkloadSubmit(t *testing.T) {
	server := bustest.Start(t)
	b := bustest.Connect(t, server, "test")
	jobs, err := bus.OpenKV[train.Job](t.Context(), b, contract.Jobs)
	if err != nil {
		t.Fatal(err)
	}
	w, err := (&workloadOptions{jobs: 4, gaps: "poisson", meanGap: time.Hour, mix: "pollux", seed: 5, prefix: "p-"}).draw()
	if err != nil {
		t.Fatal(err)
	}
	// Admission has its answers ready.
	for i, j := range w.Jobs {
		record := train.Job{ID: j.Name, State: train.StateQueued}
		if i == 1 {
			record.State, record.Message = train.StateRejected, "too large for anybody"
		}
		if _, err := jobs.Swap(t.Context(), string(j.Name), record, 0); err != nil {
			t.Fatal(err)
		}
	}
	// The last one's id is another job's.
	taken := event.OnceFact(w.Jobs[3].Name, event.FactSubmitted, "submitted", event.Submitted{Spec: train.Spec{Name: "other", Command: []string{"sleep", "1"}, MaxDevices: w.Jobs[3].Devices, MinDevices: 1}})
	if err := b.Publish(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	code, out, errs := call(t, "--nats", server.URL(), "workload", "submit", "--jobs", "4", "--gaps", "poisson", "--mean-gap", "1h", "--seed", "5", "--prefix", "p-", "--scale", "1e9",
		"--job-files", exampleJobs)
	if code != exit.Failed || strings.Count(out, "queued") != 2 || !strings.Contains(errs, "another submission has this id") || !strings.Contains(errs, "too large for anybody") || !strings.Contains(errs, "2 of 4 jobs not admitted") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	for _, j := range w.Jobs {
		m, err := b.Last(t.Context(), event.StreamJobs, event.JobSubject(j.Name, event.FactSubmitted))
		if err != nil {
			t.Errorf("%s: %v", j.Name, err)
			continue
		}
		spec, reasons := event.DecodeSubmission(m.Data)
		if len(reasons) > 0 || spec.MaxDevices != j.Devices || spec.MinDevices != 1 {
			t.Errorf("%s: %+v, %v; want one to %d devices", j.Name, spec, reasons, j.Devices)
		}
	}
}
