package trainingjob_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/services/web/trainingjob"
)

// FuzzObject: whatever a tenant writes into an object, the controller asks first for its finalizer, then for at most
// one job with the object's own id, and can write a status.
func FuzzObject(f *testing.F) {
	const head = `{"metadata": {"namespace": "ns", "name": "n", "uid": "3f2a9c1d-0000-4000-8000-000000000000", "finalizers": ["switchyard.dev/cancel"], "generation": 1`
	for _, seed := range []string{
		head + `}, "spec": {"job": {"command": ["true"], "devices": 1}, "serviceAccountName": "a", "suspend": false}}`,
		head + `, "labels": {"kueue.x-k8s.io/queue-name": "q"}}, "spec": {"suspend": true}, "status": {"observedJob": {"labels": {"a": "b"}}, "jobID": "n-1"}}`,
		head + `, "annotations": {"switchyard.dev/job": "command: [a]\nlabels: {x: y}"}}, "spec": {"runtimeRef": {"apiGroup": "switchyard.dev"}, "trainer": {"numNodes": 2,
			"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}], "resourcesPerNode": {"limits": {"nvidia.com/gpu": "2", "cpu": "1500m", "memory": "1Gi"}}},
			"runtimePatches": [{"trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [{"template": {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}}]}}}}]}}`,
		`{"metadata": {"name": "` + "ä" + `", "uid": "u"}, "spec": null, "status": null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var object map[string]any
		if json.Unmarshal(data, &object) != nil {
			return
		}
		for _, kind := range []trainingjob.Kind{trainingjob.TrainingJobs(), trainingjob.TrainJobs()} {
			o, mine, err := kind.Read(object)
			if err != nil || !mine {
				continue
			}
			step := trainingjob.Next(o, trainingjob.Known{})
			if step.Hold && len(step.Publish) > 0 || len(step.Publish) > 1 {
				t.Errorf("%s asks for %+v", kind.Name, step)
			}
			for _, r := range step.Publish {
				if r.Job != o.JobID() || r.Fact != event.FactSubmitted {
					t.Errorf("%s, job %s, asks for %+v", kind.Name, o.JobID(), r)
				}
			}
			if _, err := kind.Status(o.Status, time.Unix(0, 0)); err != nil {
				t.Errorf("the status of a %s: %v", kind.Name, err)
			}
		}
	})
}
