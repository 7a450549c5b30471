package trainingjob_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"sigs.k8s.io/yaml"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/trainingjob"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// world is an API server with one object, and a Switchyard with the jobs that it submitted.
type world struct {
	t       *testing.T
	kind    trainingjob.Kind
	object  map[string]any
	jobs    map[train.JobID]trainingjob.Known
	refused *trainingjob.Refusal
	now     time.Time
}

// The life of an object: apply changes its spec, job says what Switchyard's record of its job says, refuse has the next
// request refused, and look has the controller look until it has nothing left to do.
func TestTheLifeOfATrainingJob(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := &world{t: t, kind: trainingjob.TrainingJobs(), jobs: map[train.JobID]trainingjob.Known{}, object: map[string]any{
			"metadata": map[string]any{"namespace": "team-vision", "name": "resnet.50", "uid": "3f2a9c1d-0000-4000-8000-000000000000"},
		}, now: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)}
		datadriven.RunTest(t, path, w.do)
	})
}

func (w *world) do(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	w.t = t
	w.now = w.now.Add(time.Minute)
	switch d.Cmd {
	case "kubeflow":
		w.kind = trainingjob.TrainJobs()
		return ""
	case "annotate":
		w.metadata()["annotations"] = read[map[string]any](w, d.Input)
		return ""
	case "label":
		w.metadata()["labels"] = read[map[string]any](w, d.Input)
		return ""
	case "apply":
		w.apply(read[map[string]any](w, d.Input))
	case "delete":
		w.metadata()["deletionTimestamp"] = w.now.Format(time.RFC3339)
	case "job":
		id := train.JobID(d.CmdArgs[0].Key)
		job, row := read[train.Job](w, d.Input), read[view.Job](w, d.Input)
		job.ID, row.ID = id, id
		w.jobs[id] = trainingjob.Known{Job: &job, Row: row}
		return ""
	case "forget":
		delete(w.jobs, train.JobID(d.CmdArgs[0].Key))
		return ""
	case "refuse":
		w.refused = &trainingjob.Refusal{Fact: d.CmdArgs[0].Key, Reason: read[train.Reason](w, d.Input)}
		return ""
	}
	return w.look()
}

// read reads YAML. A job is read as its record and as its line, so keys may be unknown.
func read[T any](w *world, text string) (v T) {
	w.t.Helper()
	w.must(yaml.Unmarshal([]byte(text), &v))
	return v
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) apply(spec map[string]any) {
	generation := 1.0
	before, _ := w.metadata()["generation"].(float64)
	generation += before
	w.object["spec"] = spec
	w.metadata()["generation"] = generation
}

func (w *world) metadata() map[string]any {
	m, _ := w.object["metadata"].(map[string]any)
	return m
}

// look looks until nothing changes, and returns what was done, and the status.
func (w *world) look() string {
	w.t.Helper()
	var did strings.Builder
	for range 5 {
		o, mine, err := w.kind.Read(w.object)
		w.must(err)
		if !mine {
			return "another controller's\n"
		}
		step := trainingjob.Next(o, w.jobs[o.JobID()])
		if step.Hold {
			fmt.Fprintf(&did, "finalizers: %v\n", o.Finalizers(true))
			w.metadata()["finalizers"] = o.Finalizers(true)
			if spec, _ := w.object["spec"].(map[string]any); step.Suspend {
				did.WriteString("suspend\n")
				spec["suspend"] = true
				w.apply(spec)
			}
			continue
		}
		refused := step.Refused
		for _, r := range step.Publish {
			body, err := json.Marshal(r.Body)
			w.must(err)
			fmt.Fprintf(&did, "%s %s %s %s\n", r.Fact, r.Job, r.Key, body)
			if w.refused != nil && w.refused.Fact == r.Fact {
				refused, w.refused = w.refused, nil
				break
			}
		}
		if step.Release && refused == nil {
			fmt.Fprintf(&did, "finalizers: %v\n", o.Finalizers(false))
			return did.String()
		}
		status, err := w.kind.Status(trainingjob.After(o, step, refused, w.jobs[o.JobID()], w.now), w.now)
		w.must(err)
		w.object["status"] = status
		if len(step.Publish) == 0 || refused != nil {
			return did.String() + w.status()
		}
	}
	w.t.Error("the controller comes to no end")
	return did.String()
}

// status prints the status without what is the same in all of them.
func (w *world) status() string {
	o, _, err := w.kind.Read(w.object)
	w.must(err)
	var conditions []string
	for _, c := range o.Status.Conditions {
		if c.Status == "True" || c.Type == trainingjob.ConditionEdited || c.Type == trainingjob.ConditionAccepted {
			conditions = append(conditions, fmt.Sprintf("%s=%s since %s (%s: %s)", c.Type, c.Status, c.LastTransitionTime.Format("15:04"), c.Reason, c.Message))
		}
	}
	shown, _ := w.object["status"].(map[string]any)
	shown = maps.Clone(shown)
	delete(shown, "conditions")
	delete(shown, "observedJob")
	text, err := yaml.Marshal(shown)
	w.must(err)
	return strings.Join(append([]string{strings.TrimSuffix(string(text), "\n")}, conditions...), "\n") + "\n"
}
