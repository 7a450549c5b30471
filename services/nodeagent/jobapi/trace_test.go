package jobapi

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// traceShapes are requests as the upstream library sends them, with the answers it must get.
const traceShapes = `GET /has_to_stop/job-1 -> 0
POST /profiling/job-1 application/json {"jobid": "job-1", "timestamp": "2026-01-02T03:04:05.000006", "iternum": 3, "nodelist": "nodeA,nodeB", "numgpu": 2, "rank": 0, "meandur": 0.025, "gpumem": 1234}
POST /profiling/job-1 application/json {"jobid": "job-1", "timestamp": "2026-01-02T03:04:05.100006", "iternum": 3, "nodelist": "nodeA,nodeB", "numgpu": 2, "rank": 0, "meandur": 0.025, "gpumem": 1234, "epochDur": 0.156511}
POST /end_epoch/job-1 application/json {"done": 2}
GET /has_to_stop/job-1 -> 0
POST /profiling/job-1 application/json {"jobid": "job-1", "timestamp": "2026-01-02T03:04:05.200006", "iternum": 7, "nodelist": "nodeA,nodeB", "numgpu": 2, "rank": 0, "meandur": 0.03125, "gpumem": 1234, "epochDur": 0.132307}
POST /end_epoch/job-1 application/json {"done": 3}
GET /has_to_stop/job-1 -> 1
GET /has_to_stop/job-1 -> 1
`

func TestUpstreamLibraryShapes(t *testing.T) {
	for _, prefix := range []string{"", "/attempt/" + token + "1"} {
		t.Run("prefix "+prefix, func(t *testing.T) { replay(t, traceShapes, prefix) })
	}
}

func TestUpstreamLibraryRecordedTrace(t *testing.T) {
	data := os.Getenv("SWITCHYARD_DATA")
	if data == "" {
		t.Skip("SWITCHYARD_DATA does not name the folder of recorded data")
	}
	trace, err := os.ReadFile(filepath.Join(data, "kubeapi", "wire_trace_head.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"", "/attempt/" + token + "1"} {
		t.Run("prefix "+prefix, func(t *testing.T) { replay(t, string(trace), prefix) })
	}
}

// replay sends every request of a trace and compares answers and facts.
func replay(t *testing.T, trace, prefix string) {
	d := newBench(t, bustest.Start(t))
	d.background()
	a := attempt(1)
	d.put(a)
	if requests := send(d, a, trace, prefix); requests < 9 {
		t.Fatalf("%d requests in the trace", requests)
	}
	got := facts[event.EpochEnded](d, event.StreamJobs, event.FactEpochEnded, 2)
	for i, want := range []struct {
		done    int
		seconds float64
	}{{2, 0.156511}, {3, 0.132307}} {
		if g := got[i]; g.EpochsDone != want.done || g.EpochSeconds != want.seconds || g.Attempt != 1 || g.Devices != 2 || g.StepSeconds <= 0 ||
			g.MemoryBytes != 1234*unit.MiB {
			t.Errorf("fact %d: %+v, want epochs_done %d in %g s", i, g, want.done, want.seconds)
		}
	}
	reported := d.report(1)
	steps := train.Steps{Epoch: 3, Total: 7, Seconds: reported.Steps.Seconds, At: reported.Steps.At}
	want := train.AttemptReport{Job: "j1", Attempt: 1, EpochsDone: 3, Spoke: true, StopAnswered: true, Steps: steps}
	if diff := cmp.Diff(want, reported); diff != "" {
		t.Errorf("report (-want +got)\n%s", diff)
	}
	if beat := facts[event.Stepped](d, event.StreamSamples, event.FactStepped, 1)[0]; beat.Job != "j1" || beat.Step != 3 || beat.Devices != 2 {
		t.Errorf("heartbeat %+v", beat)
	}
}

// send sends the requests of a trace and compares the answers. It returns the number of requests.
func send(d *bench, a train.Attempt, trace, prefix string) (requests int) {
	for line := range strings.Lines(trace) {
		method, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		path, rest, _ := strings.Cut(rest, " ")
		if method == "" {
			continue
		}
		requests++
		if method == http.MethodGet {
			answer := strings.TrimPrefix(rest, "-> ")
			if answer == "1" && a.Stop == train.StopNone {
				a.Stop = train.StopPreempt
				d.put(a)
			}
			d.want(method, prefix+path, "", http.StatusOK, answer)
			continue
		}
		_, body, _ := strings.Cut(rest, " ")
		d.want(method, prefix+path, body, http.StatusOK, "ok")
	}
	return requests
}
