package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/staging"
)

// dataName is the name of the container that fetches the data of a pod, and of the volume that it fills.
const dataName = "data"

var (
	errNoFetching = errors.New("data_url: the operator has named no image that fetches data for pods (executor.pod_data_image)")
	errNoFile     = errors.New("data_url: a pod sees no files of the nodes: name a folder below a volume root as datasets_dir")
)

// mayFetch returns why pods cannot have the data of a job, or nil if they can.
func mayFetch(s train.Spec, o Options) error {
	u, err := url.Parse(s.DataURL)
	switch {
	case s.DataURL == "":
	case err == nil && u.Scheme == "file":
		return errNoFile
	case o.DataImage == "":
		return errNoFetching
	}
	return nil
}

// readerOf is the name under which the pods of an attempt find their copy of its data.
func readerOf(a train.Attempt) string { return fmt.Sprintf("%s.%d", a.Job, a.Number) }

// addData mounts the copy that the container of the data makes. Each namespace has copies of its own, in the volume
// that the operator names, where they are shared and kept; without one each pod has its own.
func (v *volumes) addData(s launch.Setting, o Options) error {
	copied := path.Join(o.NamespaceOf(s.Spec.Tenant), staging.Link(readerOf(s.Attempt)))
	if o.DataRoot == "" {
		v.sources = append(v.sources, corev1.Volume{Name: dataName, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		v.mounts = append(v.mounts, corev1.VolumeMount{Name: dataName, MountPath: launch.DataTarget, SubPath: copied})
	} else {
		r, err := parseRoot(o.DataRoot)
		if err != nil {
			return err
		}
		v.addOwn(dataName, r, copied, launch.DataTarget)
	}
	v.mounts[len(v.mounts)-1].ReadOnly = true
	return nil
}

// fetching gives a pod the container that fetches its data. As the job's own, it does not start without the Secret of
// the attempt.
func (t podTemplate) fetching(pod *corev1.Pod) {
	if t.Spec.DataURL == "" {
		return
	}
	job := pod.Spec.Containers[0]
	order, _ := json.Marshal(t.order) // of texts, numbers and times
	c := corev1.Container{
		Name: dataName, Image: t.options.DataImage, ImagePullPolicy: job.ImagePullPolicy, Args: []string{staging.Argument},
		Env:             []corev1.EnvVar{t.secret(train.MarkVariable, secretMark), {Name: staging.OrderVariable, Value: literal(string(order))}},
		VolumeMounts:    []corev1.VolumeMount{{Name: dataName, MountPath: staging.PodRoot, SubPath: t.key.namespace}},
		SecurityContext: job.SecurityContext, TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}},
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if q, given := job.Resources.Requests[name]; given {
			c.Resources.Requests[name] = q
		}
		if q, given := job.Resources.Limits[name]; given {
			c.Resources.Limits[name] = q
		}
	}
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
}

// orderOf says what the pods of an attempt fetch, and who else reads the copies in its namespace.
func (b *Backend) orderOf(s launch.Setting, namespace string) staging.Order {
	o := staging.Order{Terms: b.data, URL: s.Spec.DataURL, Reader: readerOf(s.Attempt), At: time.Now().UTC()}
	if s.Spec.DataURL == "" || b.options.DataRoot == "" {
		return o
	}
	for _, p := range b.pods.all(namespace) {
		k, found := keyFrom(p)
		if found && len(p.Spec.InitContainers) > 0 && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			o.Live = append(o.Live, readerOf(train.Attempt{Job: k.job, Number: k.number}))
		}
	}
	slices.Sort(o.Live)
	o.Live = slices.Compact(o.Live)
	return o
}

// dataStatus returns the state of the container that fetches a pod's data, or nil if the pod has none.
func dataStatus(p *corev1.Pod) *corev1.ContainerState {
	for i, c := range p.Status.InitContainerStatuses {
		if c.Name == dataName {
			return &p.Status.InitContainerStatuses[i].State
		}
	}
	return nil
}

// fetchingNow reports whether data of one of the pods is on its way, which takes as long as it takes.
func (v view) fetchingNow() bool {
	return slices.ContainsFunc(v.pods, func(p *corev1.Pod) bool { s := dataStatus(p); return s != nil && s.Running != nil })
}

// staging returns how far the data of the first pod is; nil without any. While it is fetched, its address is known.
func (v view) staging() *train.Staging {
	s := dataStatus(v.pods[0])
	switch {
	case s == nil:
	case s.Running != nil:
		for _, e := range v.pods[0].Spec.InitContainers[0].Env {
			var o staging.Order
			if e.Name == staging.OrderVariable && json.Unmarshal([]byte(strings.ReplaceAll(e.Value, "$$(", "$(")), &o) == nil {
				shown, _, _ := strings.Cut(o.URL, "?") // a signature may follow
				return &train.Staging{URL: shown}
			}
		}
	case s.Terminated != nil && s.Terminated.ExitCode == 0:
		var done train.Staging
		if json.Unmarshal([]byte(s.Terminated.Message), &done) == nil && done.URL != "" {
			return &done
		}
	}
	return nil
}

// notFetched returns the failure of a pod whose data could not be fetched. A container that was killed says nothing.
func notFetched(p *corev1.Pod) *failure {
	s := dataStatus(p)
	if s == nil || s.Terminated == nil || s.Terminated.ExitCode == 0 || signalOf(s.Terminated.ExitCode) != "" {
		return nil
	}
	return &failure{launch.NotStaged("data_url: "+firstLine(s.Terminated.Message), s.Terminated.ExitCode == staging.NeverCode), s.Terminated.FinishedAt.Time}
}
