package kube

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// podPort is the port on which each process of a gang is reached. Each pod has an address of its own, so all may use the same one.
const podPort = 29500

// The keys of an attempt's Secret.
const (
	secretCapability = "capability"
	secretToken      = "token"
	// tokenVariable brings the token into the address of the job API.
	tokenVariable = "SWITCHYARD_JOB_TOKEN"
)

// order is what the pods of one attempt are made from.
type order struct {
	launch.Setting
	key       key
	processes []launch.Process
	volumes   volumes
	options   Options
	killAfter time.Duration
	owner     metav1.OwnerReference
}

// newOrder settles the processes of an attempt and where they meet.
func newOrder(s launch.Setting, o Options, killAfter time.Duration) (order, error) {
	s.Mounted = true
	s.Places = slices.Clone(s.Places)
	if s.Spec.Launch == train.LaunchPerDevice {
		s.Places = onePlaceEach(s.Places)
	}
	for i := range s.Places {
		s.Places[i].Node.JobAPISocket = "" // a socket of the node is nothing to a pod
	}
	if s.Spec.Strategy == train.StrategyParameterServer {
		s.Servers = s.Attempt.Servers
	}
	if s.Spec.Image == "" {
		s.Spec.Image = o.Image
	}
	r := order{Setting: s, key: key{s.Job, s.Attempt.Number}, options: o, killAfter: killAfter, processes: s.Processes()}
	for rank := range r.processes {
		r.Ports = append(r.Ports, podPort)
		if len(r.processes) > 1 {
			r.Addresses = append(r.Addresses, r.key.pod(rank)+"."+r.key.rendezvous())
		}
	}
	if why := o.allowsMemory(s.Spec.MainMemoryMiB); why != "" {
		return r, fmt.Errorf("main_memory_mib %d: %s", s.Spec.MainMemoryMiB, why) //nolint:err113 // the words are for the job's owner
	}
	var err error
	r.volumes, err = composeVolumes(s, o)
	return r, err
}

// onePlaceEach makes a place of every device: a pod sees its own device only, so to the code each pod is a node with one device.
func onePlaceEach(places []launch.Place) []launch.Place {
	var all []launch.Place
	for _, p := range places {
		for _, d := range p.Devices {
			all = append(all, launch.Place{Node: p.Node, Devices: []train.Device{d}, Memory: p.Memory})
		}
	}
	return all
}

// pod composes the pod of a rank. meeting is the address of the first pod, for those that come after it.
func (o order) pod(rank int, meeting string) *corev1.Pod {
	p := o.processes[rank]
	name := o.key.pod(rank)
	grace := int64(math.Ceil(o.killAfter.Seconds()))
	no, yes := false, true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: o.options.Namespace, Labels: o.key.podLabels(o.Attempt.Generation, rank, p.Role),
			Annotations: map[string]string{
				annotationJob: string(o.Job), annotationMark: o.Attempt.Mark(), annotationRanks: strconv.Itoa(len(o.processes)),
				annotationSlots: strconv.Itoa(slotsOf(p.Devices)),
			},
			Finalizers: []string{finalizer}, OwnerReferences: []metav1.OwnerReference{o.owner},
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
			Affinity: pinnedTo(o.Places[p.Place].Node.Name), Volumes: o.volumes.sources,
			Tolerations:     tolerations(o.options.Tolerate),
			SecurityContext: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "job", Image: o.Spec.Image, ImagePullPolicy: corev1.PullPolicy(o.options.PullPolicy), Command: o.command(), WorkingDir: o.workDir(),
				Env: o.environment(rank), VolumeMounts: o.volumes.mounts, Resources: o.resources(p),
				SecurityContext:          &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
				TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			}},
		},
	}
	if o.options.RunAsUser >= 0 {
		pod.Spec.SecurityContext.RunAsUser = &o.options.RunAsUser
		pod.Spec.SecurityContext.RunAsNonRoot = &yes
		if o.options.RunAsUser == 0 {
			pod.Spec.SecurityContext.RunAsNonRoot = nil
		}
	}
	if len(o.processes) > 1 {
		pod.Spec.Hostname, pod.Spec.Subdomain = name, o.key.rendezvous()
	}
	if meeting != "" {
		// The place to meet is found without DNS, too.
		pod.Spec.HostAliases = []corev1.HostAlias{{IP: meeting, Hostnames: []string{o.Addresses[0]}}}
	} else if len(o.processes) > 1 {
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, ownAddress(o.processes[0].Role, o.Servers)...)
	}
	return pod
}

func tolerations(taints []string) []corev1.Toleration {
	var list []corev1.Toleration
	for _, t := range taints {
		list = append(list, corev1.Toleration{Key: t, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	return list
}

// ownAddress tells the first process the place to meet by number: its own name may not be resolved in its own pod.
func ownAddress(role launch.Role, servers int) []corev1.EnvVar {
	names := []string{"MASTER_ADDR"}
	if servers > 0 && role == launch.RoleScheduler {
		names = append(names, "DMLC_PS_ROOT_URI")
	}
	var env []corev1.EnvVar
	for _, n := range names {
		env = append(env, corev1.EnvVar{Name: n, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}})
	}
	return env
}

// pinnedTo requires a node. The scheduler still checks that there is room, which nodeName would skip: the pod waits then instead of failing for good.
func pinnedTo(node string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}},
	}}}
}

// literal has the kubelet take a text as it is: $(NAME) would be replaced.
func literal(text string) string { return strings.ReplaceAll(text, "$(", "$$(") }

func (o order) command() []string {
	args := o.Spec.Command
	if o.Spec.ScriptPath != "" {
		args = []string{"python", o.Spec.ScriptPath}
	}
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = literal(a)
	}
	return words
}

func (o order) workDir() string {
	if o.Spec.WorkDir == "" && o.Spec.CustomDir != "" {
		return launch.CustomTarget
	}
	return o.Spec.WorkDir
}

// environment is the job's own and the scheduler's, secrets by reference.
func (o order) environment(rank int) []corev1.EnvVar {
	s := o.Setting
	s.Token = "$(" + tokenVariable + ")"
	values := map[string]string{"PYTHONUNBUFFERED": "1"}
	for name, value := range o.Spec.Env {
		values[name] = literal(value)
	}
	scheduler := s.Scheduler(rank)
	// Which devices a container sees is said here, where all of them are known: of two device plugins that both say it, one would win.
	gpus := launch.Place{Devices: o.processes[rank].Devices}.GPUs()
	scheduler["NVIDIA_VISIBLE_DEVICES"], scheduler["CUDA_VISIBLE_DEVICES"] = uuids(gpus), launch.Inside(gpus)
	delete(scheduler, "JOB_UUID")
	delete(scheduler, "SWITCHYARD_JOB_SOCKET")
	maps.Copy(values, scheduler)
	if len(o.processes) > 1 && rank == 0 {
		delete(values, "MASTER_ADDR")
		delete(values, "DMLC_PS_ROOT_URI")
	}
	delete(values, tokenVariable)
	env := []corev1.EnvVar{o.secret("JOB_UUID", secretCapability), o.secret(tokenVariable, secretToken)}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if name != "JOB_UUID" {
			env = append(env, corev1.EnvVar{Name: name, Value: values[name]})
		}
	}
	return env
}

func (o order) secret(variable, name string) corev1.EnvVar {
	return corev1.EnvVar{Name: variable, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: o.key.base()}, Key: name,
	}}}
}

// uuids names the GPUs of a container to the driver's hook.
func uuids(gpus []train.Device) string {
	if len(gpus) == 0 {
		return "void"
	}
	names := make([]string, len(gpus))
	for i, d := range gpus {
		names[i] = d.UUID
	}
	return strings.Join(names, ",")
}
