// Package trainingjob decides what a TrainingJob, a custom resource of Kubernetes, or Kubeflow's TrainJob asks of its
// job, and what the status of the object says of the job. It reads and writes nothing: package kubejobs does.
package trainingjob

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Group is the API group of Switchyard.
const Group = "switchyard.dev"

// Kind is a kind of objects that are jobs.
type Kind struct {
	// What the API server calls the resource.
	Group, Version, Name, Resource string
	// read completes an object by its JSON. mine is false if it is another controller's.
	read func(data []byte, o *Object) (mine bool, err error)
	// status returns a status as objects of the kind have it.
	status func(s Status, now time.Time) any
}

// TrainingJobs are the objects of Switchyard itself.
func TrainingJobs() Kind {
	return Kind{
		Group: Group, Version: "v1alpha1", Name: "TrainingJob", Resource: "trainingjobs",
		read:   func([]byte, *Object) (bool, error) { return true, nil },
		status: func(s Status, _ time.Time) any { return s },
	}
}

// Read reads an object of the kind. mine is false if it is another controller's.
func (k Kind) Read(object map[string]any) (o Object, mine bool, err error) {
	data, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(data, &o)
	}
	o.kind = k.Name
	if err == nil {
		mine, err = k.read(data, &o)
	}
	if err != nil {
		return o, false, fmt.Errorf("read a %s: %w", k.Name, err)
	}
	return o, mine, nil
}

// Status returns a status as JSON objects, as objects of the kind have it.
func (k Kind) Status(s Status, now time.Time) (map[string]any, error) {
	object := map[string]any{}
	data, err := json.Marshal(k.status(s, now))
	if err == nil {
		err = json.Unmarshal(data, &object)
	}
	if err != nil {
		return nil, fmt.Errorf("write the status of a %s: %w", k.Name, err)
	}
	return object, nil
}

// Finalizer keeps a deleted object until the bus has stored that its job is to end.
const Finalizer = Group + "/cancel"

// queueLabel names the queue of Kueue that decides when an object runs.
const queueLabel = "kueue.x-k8s.io/queue-name"

// Object is a TrainingJob as the API server has it, or another object that asks for the same.
type Object struct {
	Metadata Metadata `json:"metadata"`
	Spec     Spec     `json:"spec"`
	Status   Status   `json:"status,omitzero"`

	// kind is what the object is, trouble why no job can be what it asks for.
	kind    string
	trouble *train.Reason
}

// Metadata is the part of the object's metadata that counts here.
type Metadata struct {
	Namespace         string            `json:"namespace"`
	Name              string            `json:"name"`
	UID               string            `json:"uid"`
	ResourceVersion   string            `json:"resourceVersion"`
	Generation        int64             `json:"generation"`
	Labels            map[string]string `json:"labels"`
	Finalizers        []string          `json:"finalizers"`
	DeletionTimestamp time.Time         `json:"deletionTimestamp,omitzero"`
}

// Spec is what the owner of the object wants.
type Spec struct {
	// Job is a job file. Its keys that may change do so with the object; user and tenant follow from the namespace.
	Job map[string]any `json:"job"`
	// Suspend keeps the job from being submitted or, if it was, pauses it: it leaves its devices by its checkpoint.
	Suspend bool `json:"suspend,omitempty"`
	// ServiceAccountName is the service account whose job it is: the user NAMESPACE.NAME (default: default).
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// Account is the service account whose job it is.
func (o Object) Account() string { return cmp.Or(o.Spec.ServiceAccountName, "default") }

// JobID is the id of the object's job: of the newest one, if it was submitted again.
func (o Object) JobID() train.JobID {
	return cmp.Or(o.Status.JobID, o.firstID())
}

// firstID names the object's first job: by the object's name, and by its UID, since names come again. A job id has room
// for the number of a generation behind it.
func (o Object) firstID() train.JobID {
	const longestName, digits = 40, 8
	name := strings.ReplaceAll(o.Metadata.Name, ".", "-")
	uid := strings.ReplaceAll(o.Metadata.UID, "-", "")
	return train.JobID(name[:min(len(name), longestName)] + "-" + uid[:min(len(uid), digits)])
}

// file is the job file, with the name of the object if it names none.
func (o Object) file() map[string]any {
	file := map[string]any{"name": o.Metadata.Name}
	maps.Copy(file, o.Spec.Job)
	return file
}

func (o Object) held() bool { return slices.Contains(o.Metadata.Finalizers, Finalizer) }

// Finalizers returns those of the object with ours, or without.
func (o Object) Finalizers(held bool) []string {
	all := slices.DeleteFunc(slices.Clone(o.Metadata.Finalizers), func(f string) bool { return f == Finalizer })
	if held {
		all = append(all, Finalizer)
	}
	return all
}
