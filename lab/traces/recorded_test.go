package traces

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The shapes are those of the published files, with their oddities: Philly's attempts without an end, Alibaba's pods
// that were never scheduled, and its task table without a header.
const (
	philly = `[
 {"status": "Pass", "vc": "ee9e8c", "jobid": "application_1_0002", "user": "a", "submitted_time": "2017-10-09 08:00:00",
  "attempts": [{"start_time": "2017-10-09 08:01:00", "end_time": "2017-10-09 08:11:00", "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0", "gpu1"]}]}]},
 {"status": "Killed", "vc": "ee9e8c", "jobid": "application_1_0001", "user": "b", "submitted_time": "2017-10-09 07:00:00",
  "attempts": [{"start_time": "2017-10-09 07:00:30", "end_time": "2017-10-09 17:00:30", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]},
               {"start_time": "2017-10-09 17:10:30", "end_time": "2017-10-11 17:10:30", "detail": [{"ip": "m3", "gpus": ["gpu2", "gpu3"]}]},
               {"start_time": "2017-10-11 18:00:00", "end_time": "None", "detail": []}]},
 {"status": "Failed", "vc": "ee9e8c", "jobid": "application_1_0003", "user": "b", "submitted_time": "2017-10-09 09:00:00", "attempts": []}
]`
	pods = `name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
openb-pod-0000,12000,16384,1,1000,,LS,Running,100,20000,110
openb-pod-0001,6000,12288,1,460,,LS,Running,160,520,160
openb-pod-0002,6000,12288,0,0,,LS,Succeeded,170,520,170
openb-pod-0003,6000,12288,8,1000,V100M32,LS,Pending,180,190,
`
	tasks = `j1,tensorflow,4,Terminated,1000.0,1600.0,600.0,29.29,50.0,MISC
j2,worker,1,Terminated,1200.0,5200000.0,600.0,29.29,800.0,V100
j3,ps,1,Terminated,1300.0,1400.0,600.0,29.29,,
j4,worker,1,Waiting,,,600.0,29.29,100.0,T4
`
)

func TestPublishedTracesAreRead(t *testing.T) {
	small := map[string]bool{"cifar10": true, "ncf": true}
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"philly":          {philly, []string{"0 2 yolov3/imagenet", "3600 4 small"}},
		"pods":            {pods, []string{"0 1 deepspeech2/bert", "60 1 small"}},
		"tasks":           {tasks, []string{"0 2 small", "200 8 imagenet"}},
		"with its header": {taskHeader + "\n" + tasks, []string{"0 2 small", "200 8 imagenet"}},
	} {
		w, err := Recorded(name, []byte(c.text), 10, "pollux", 1)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for i, j := range w.Jobs {
			what := j.Application
			if small[what] {
				what = "small"
			}
			devices := j.Devices
			if i < len(c.want) && j.Application == "ncf" { // which runs on one device whatever was asked for
				_, _ = fmt.Sscanf(strings.Fields(c.want[i])[1], "%d", &devices)
			}
			if i < len(c.want) && strings.Contains(strings.Fields(c.want[i])[2], what) {
				what = strings.Fields(c.want[i])[2]
			}
			got = append(got, fmt.Sprintf("%g %d %s", j.Seconds, devices, what))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}

func TestWhatIsNoTraceIsRefused(t *testing.T) {
	for _, text := range []string{"", "a,b\n1,2\n", "[]", `[{"submitted_time": "today"}]`, "num_gpu,creation_time\n1,2\n"} {
		if w, err := Recorded("x", []byte(text), 10, "pollux", 1); err == nil {
			t.Errorf("%q: %d jobs", text, len(w.Jobs))
		}
	}
	if _, err := Recorded("x", []byte(pods), 10, "none", 1); err == nil {
		t.Error("any mix is known")
	}
	if w, err := Recorded("x", []byte(pods), 1, "sharing", 1); err != nil || len(w.Jobs) != 1 || w.Jobs[0].Devices != 1 {
		t.Errorf("%+v, error %v", w, err)
	}
}
