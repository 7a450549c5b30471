package kube

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// A claim names each GPU of a rank by its UUID, whichever driver offers it, and asks for the job's part of it.
func TestRequestsOfAClaim(t *testing.T) {
	devices := []train.Device{gpu("0", "aa", false), gpu("1", "bb", false)}
	for i := range devices {
		devices[i].Resource, devices[i].Class = "", "gpu.nvidia.com"
	}
	for name, test := range map[string]struct {
		launch train.Launch
		part   unit.Bytes
		rank   int
		want   string
	}{
		"whole GPUs": {train.LaunchPerNode, 0, 0, `[
			{"name": "device-0", "exactly": {"deviceClassName": "gpu.nvidia.com", "selectors": [{"cel": {"expression": "has(device.attributes[device.driver].uuid) && device.attributes[device.driver].uuid == \"GPU-aa\""}}]}},
			{"name": "device-1", "exactly": {"deviceClassName": "gpu.nvidia.com", "selectors": [{"cel": {"expression": "has(device.attributes[device.driver].uuid) && device.attributes[device.driver].uuid == \"GPU-bb\""}}]}}]`},
		"a part, one process per device": {train.LaunchPerDevice, 6 * unit.GiB, 1, `[
			{"name": "device-0", "exactly": {"deviceClassName": "gpu.nvidia.com", "selectors": [{"cel": {"expression": "has(device.attributes[device.driver].uuid) && device.attributes[device.driver].uuid == \"GPU-bb\""}}],
				"capacity": {"requests": {"memory": "6Gi"}}}}]`},
	} {
		s := setting(launch.Place{Node: train.Node{ID: "n1", Name: "n1"}, Devices: devices, Memory: test.part})
		s.Spec.Launch = test.launch
		pods, err := newPodTemplate(s, key{"jobs", "job-a", 3}, defaults(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(pods.requests(test.rank))
		if err != nil {
			t.Fatal(err)
		}
		var got, want any
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(test.want), &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}
