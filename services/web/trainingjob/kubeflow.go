package trainingjob

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// annotationJob has keys of the job file that a TrainJob has no field for, as YAML.
const annotationJob = Group + "/job"

// TrainJobs are the TrainJob objects of Kubeflow Trainer whose runtimeRef has our apiGroup.
func TrainJobs() Kind {
	return Kind{Group: "trainer.kubeflow.org", Version: "v1alpha1", Name: "TrainJob", Resource: "trainjobs", read: readTrainJob, status: trainJobStatus}
}

// trainJob is the part of a TrainJob that counts here.
type trainJob struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		RuntimeRef struct {
			APIGroup string `json:"apiGroup"`
		} `json:"runtimeRef"`
		Initializer           any       `json:"initializer"`
		Trainer               trainer   `json:"trainer"`
		RuntimePatches        []patches `json:"runtimePatches"`
		ActiveDeadlineSeconds int64     `json:"activeDeadlineSeconds"`
	} `json:"spec"`
	Status struct {
		TrainerStatus struct {
			ProgressPercentage *int      `json:"progressPercentage"`
			LastUpdatedTime    time.Time `json:"lastUpdatedTime"`
		} `json:"trainerStatus"`
	} `json:"status"`
}

// trainer is the container that trains, and the number of its nodes.
type trainer struct {
	Image            string     `json:"image"`
	Command          []string   `json:"command"`
	Args             []string   `json:"args"`
	Env              []variable `json:"env"`
	NumNodes         *int       `json:"numNodes"`
	ResourcesPerNode struct {
		Limits   map[string]resource.Quantity `json:"limits"`
		Requests map[string]resource.Quantity `json:"requests"`
	} `json:"resourcesPerNode"`
}

// variable is a variable of the environment.
type variable struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	ValueFrom *struct {
		SecretKeyRef struct {
			Name string `json:"name"`
			Key  string `json:"key"`
		} `json:"secretKeyRef"`
	} `json:"valueFrom"`
}

// patches are the changes of one manager, such as Kueue, to the pods.
type patches struct {
	TrainingRuntimeSpec struct {
		Template struct {
			Spec struct {
				ReplicatedJobs []struct {
					Template struct {
						Spec struct {
							Template struct {
								Spec map[string]any `json:"spec"`
							} `json:"template"`
						} `json:"spec"`
					} `json:"template"`
				} `json:"replicatedJobs"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"trainingRuntimeSpec"`
}

// readTrainJob reads a TrainJob as a TrainingJob that asks for the same. mine is false if the object
// names another runtime.
func readTrainJob(data []byte, o *Object) (mine bool, err error) {
	var t trainJob
	if err := json.Unmarshal(data, &t); err != nil {
		return false, fmt.Errorf("decode: %w", err)
	}
	if t.Spec.RuntimeRef.APIGroup != Group {
		return false, nil
	}
	o.Spec.Job = map[string]any{}
	err = t.file(o)
	if extra := t.Metadata.Annotations[annotationJob]; err == nil && extra != "" {
		var keys map[string]any
		if err = yaml.Unmarshal([]byte(extra), &keys); err != nil {
			err = fmt.Errorf("annotation %s: %w", annotationJob, err)
		}
		maps.Copy(o.Spec.Job, keys)
	}
	if err != nil {
		o.trouble = &train.Reason{Code: "Unsupported", Message: err.Error()}
	}
	o.Status = t.before(*o)
	return true, nil
}

// file writes the job file. Devices are GPUs if the nodes ask for some, else one for each node.
func (t trainJob) file(o *Object) error {
	if t.Spec.Initializer != nil {
		return fmt.Errorf("spec.initializer: %w", errPart)
	}
	set := func(key string, value any, is bool) {
		if is {
			o.Spec.Job[key] = value
		}
	}
	r := t.Spec.Trainer
	set("image", r.Image, r.Image != "")
	set("command", slices.Concat(r.Command, r.Args), len(r.Command)+len(r.Args) > 0)
	set("time_limit", (time.Duration(t.Spec.ActiveDeadlineSeconds) * time.Second).String(), t.Spec.ActiveDeadlineSeconds > 0)
	devices := 1
	if r.NumNodes != nil {
		devices = *r.NumNodes
	}
	for _, name := range slices.Sorted(maps.Keys(r.amounts())) {
		amount := r.amounts()[name]
		switch {
		case name == "cpu":
			set("cores", int(math.Ceil(amount.AsApproximateFloat64())), true)
		case name == "memory":
			set("main_memory_mib", (amount.Value()+(1<<20)-1)>>20, true)
		case strings.HasSuffix(name, "/gpu"):
			devices *= int(amount.Value())
			set("device", string(train.KindGPU), true)
		default:
			return fmt.Errorf("spec.trainer.resourcesPerNode: %s: %w", name, errPart)
		}
	}
	set("devices", devices, true)
	if err := t.environment(o); err != nil {
		return err
	}
	return t.patch(o)
}

var errPart = fmt.Errorf("Switchyard makes no such thing for a job: leave it out, or put what it needs into the annotation %s", annotationJob) //nolint:staticcheck // a name

// amounts are the limits of a node, and the requests of what has no limit.
func (r trainer) amounts() map[string]resource.Quantity {
	all := map[string]resource.Quantity{}
	maps.Copy(all, r.ResourcesPerNode.Requests)
	maps.Copy(all, r.ResourcesPerNode.Limits)
	return all
}

func (t trainJob) environment(o *Object) error {
	env, secrets := map[string]any{}, map[string]any{}
	for _, v := range t.Spec.Trainer.Env {
		switch {
		case v.ValueFrom == nil:
			env[v.Name] = v.Value
		case v.ValueFrom.SecretKeyRef.Name != "":
			secrets[v.Name] = "secret:" + v.ValueFrom.SecretKeyRef.Name + "/" + v.ValueFrom.SecretKeyRef.Key
		default:
			return fmt.Errorf("spec.trainer.env: valueFrom of %s, other than a Secret: %w", v.Name, errPart)
		}
	}
	if len(env) > 0 {
		o.Spec.Job["env"] = env
	}
	if len(secrets) > 0 {
		o.Spec.Job["secret_env"] = secrets
	}
	return nil
}

// patch takes over what managers change of the pods: nodes, and whose the job is. Taints that jobs tolerate, and
// gates, are the executor's.
func (t trainJob) patch(o *Object) error {
	labels := map[string]any{}
	for _, p := range t.Spec.RuntimePatches {
		for _, job := range p.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs {
			for _, key := range slices.Sorted(maps.Keys(job.Template.Spec.Template.Spec)) {
				value := job.Template.Spec.Template.Spec[key]
				switch key {
				case "nodeSelector":
					selector, _ := value.(map[string]any)
					maps.Copy(labels, selector)
				case "serviceAccountName":
					o.Spec.ServiceAccountName, _ = value.(string)
				case "tolerations", "schedulingGates":
				default:
					return fmt.Errorf("spec.runtimePatches: %s: %w", key, errPart)
				}
			}
		}
	}
	if len(labels) > 0 {
		o.Spec.Job["node_labels"] = labels
	}
	return nil
}

// before is the status as the conditions show it: a TrainJob has no field for the rest.
func (t trainJob) before(o Object) Status {
	s := Status{Conditions: o.Status.Conditions, ProgressPercent: t.Status.TrainerStatus.ProgressPercentage, CompletionTime: t.Status.TrainerStatus.LastUpdatedTime}
	for _, c := range s.Conditions {
		s.ObservedGeneration = max(s.ObservedGeneration, c.ObservedGeneration)
	}
	suspended := s.condition(ConditionSuspended)
	s.Suspended = suspended.Status == "True" || suspended.Reason == reasonLeaving
	became := func(c Condition, state train.State) { s.State, s.Reason, s.Message = state, c.Reason, c.Message }
	accepted, complete, failed := s.condition(ConditionAccepted), s.condition(ConditionComplete), s.condition(ConditionFailed)
	switch {
	case accepted.Status == "False":
		became(accepted, train.StateRejected)
		return s
	case accepted.Type == "":
		return s
	case complete.Status == "True":
		became(complete, train.StateSucceeded)
	case failed.Status == "True":
		became(failed, train.StateFailed)
	default:
		s.State = train.StateSubmitted
	}
	s.JobID = o.firstID()
	return s
}

// trainJobStatus returns the status of a TrainJob: the conditions that hold, as its own controller has them, and that
// of Accepted.
func trainJobStatus(s Status, now time.Time) any {
	var conditions []Condition
	for _, c := range s.Conditions {
		if c.Status == "True" || c.Type == ConditionAccepted || c.Reason == reasonLeaving {
			conditions = append(conditions, c)
		}
	}
	one := func(is bool) int {
		if is {
			return 1
		}
		return 0
	}
	ended := s.State.Terminal()
	status := map[string]any{"conditions": conditions, "jobsStatus": []map[string]any{{
		"name": "node", "ready": one(s.State.Active() || s.State == train.StateSucceeded), "active": one(s.State.Active()), "suspended": one(s.Suspended && !s.State.Active()),
		"succeeded": one(s.State == train.StateSucceeded), "failed": one(ended && s.State != train.StateSucceeded),
	}}}
	if s.ProgressPercent != nil && (s.State.Active() || ended && !s.CompletionTime.IsZero()) {
		progress := map[string]any{"progressPercentage": *s.ProgressPercent, "lastUpdatedTime": s.CompletionTime}
		if !ended {
			progress["lastUpdatedTime"] = now.UTC().Truncate(time.Second)
			if !s.PredictedFinish.IsZero() {
				progress["estimatedRemainingSeconds"] = max(int(s.PredictedFinish.Sub(now).Seconds()), 0)
			}
		}
		status["trainerStatus"] = progress
	}
	return status
}

// refusal says why no job can be made of the object; nil if one can.
func (o Object) refusal() *Refusal {
	if o.trouble == nil {
		return nil
	}
	return &Refusal{Fact: event.FactSubmitted, Reason: *o.trouble}
}
