package kube

import (
	"cmp"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// The labels and annotations of created objects. A label cannot hold every job's id, so programs read the annotation.
const (
	prefix          = "switchyard.dev/"
	labelManaged    = "app.kubernetes.io/managed-by"
	labelJob        = prefix + "job"
	labelAttempt    = prefix + "attempt"
	labelRank       = prefix + "rank"
	labelRole       = prefix + "role"
	labelGeneration = prefix + "generation"
	// labelPorts is on the pod of a job that the ports of the job lead to: network policies let everybody reach it.
	labelPorts = prefix + "ports"
	// annotationRanks is the number of pods of the attempt, annotationSlots that of the pod's CPU slots.
	annotationJob   = prefix + "job"
	annotationRanks = prefix + "ranks"
	annotationSlots = prefix + "slots"
	// finalizer keeps a pod until its end is recorded.
	finalizer = prefix + "recorded"
	manager   = "switchyard"
	// selector matches everything the executor creates.
	selector = labelManaged + "=" + manager
)

// key identifies an attempt, and the namespace of its objects.
type key struct {
	namespace string
	job       train.JobID
	number    int
}

// keyOf returns the key of an attempt. Attempts of older versions name no namespace.
func (c *cluster) keyOf(a train.Attempt) key {
	return key{cmp.Or(a.Namespace, c.options.Namespace), a.Job, a.Number}
}

// base is the name of an attempt: the name of its first pod without the rank.
func (k key) base() string { return fmt.Sprintf("%s-%d", k.slug(), k.number) }

// attempt is the attempt's own name in its namespace.
func (k key) attempt() string { return fmt.Sprintf("%s/%d", k.job, k.number) }

func (k key) pod(rank int) string { return train.PodName(k.job, k.number, rank) }

// The name of a Service begins with a letter; that of a job need not.
func (k key) rendezvous() string { return "r-" + k.base() }
func (k key) ports() string      { return "p-" + k.base() }

// slug is the job's id as a label.
func (k key) slug() string { return train.PodSlug(k.job) }

// labels are the labels of every object of an attempt.
func (k key) labels(generation uint64) map[string]string {
	return map[string]string{
		labelManaged: manager, labelJob: k.slug(), labelAttempt: strconv.Itoa(k.number), labelGeneration: strconv.FormatUint(generation, 10),
	}
}

// podLabels adds the labels that tell the pods of an attempt apart.
func (k key) podLabels(generation uint64, rank int, role launch.Role) map[string]string {
	labels := k.labels(generation)
	labels[labelRank], labels[labelRole] = strconv.Itoa(rank), string(role)
	return labels
}

// keyFrom reads the attempt that an object belongs to.
func keyFrom(o metav1.Object) (key, bool) {
	job, err := train.ParseJobID(o.GetAnnotations()[annotationJob])
	if err != nil {
		return key{}, false
	}
	number, err := strconv.Atoi(o.GetLabels()[labelAttempt])
	return key{o.GetNamespace(), job, number}, err == nil
}

// has reports whether an object was made for the attempt. The name of an object does not say so: anybody may have made
// one of that name before.
func (k key) has(o metav1.Object) bool {
	found, ours := keyFrom(o)
	return ours && found == k && o.GetLabels()[labelManaged] == manager
}

func rankOf(o metav1.Object) int {
	rank, err := strconv.Atoi(o.GetLabels()[labelRank])
	if err != nil {
		return -1
	}
	return rank
}

func compareKeys(x, y key) int {
	return cmp.Or(cmp.Compare(x.job, y.job), cmp.Compare(x.number, y.number), cmp.Compare(x.namespace, y.namespace))
}
