// Package trainingjob decides what a TrainingJob, a custom resource of Kubernetes, asks of its job, and what the status
// of the object says of the job. It reads and writes nothing: package kubejobs does.
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

// What the API server calls the resource.
const (
	Group    = "switchyard.dev"
	Version  = "v1alpha1"
	Kind     = "TrainingJob"
	Resource = "trainingjobs"
)

// Finalizer keeps a deleted object until the bus has stored that its job is to end.
const Finalizer = Group + "/cancel"

// Object is a TrainingJob as the API server has it.
type Object struct {
	Metadata Metadata `json:"metadata"`
	Spec     Spec     `json:"spec"`
	Status   Status   `json:"status,omitzero"`
}

// Metadata is the part of the object's metadata that counts here.
type Metadata struct {
	Namespace         string    `json:"namespace"`
	Name              string    `json:"name"`
	UID               string    `json:"uid"`
	ResourceVersion   string    `json:"resourceVersion"`
	Generation        int64     `json:"generation"`
	Finalizers        []string  `json:"finalizers"`
	DeletionTimestamp time.Time `json:"deletionTimestamp,omitzero"`
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

// Read reads an object.
func Read(object map[string]any) (Object, error) {
	var o Object
	data, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(data, &o)
	}
	if err != nil {
		return o, fmt.Errorf("read a %s: %w", Kind, err)
	}
	return o, nil
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
