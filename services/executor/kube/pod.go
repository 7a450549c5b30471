package kube

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/staging"
)

// podPort is the port on which each process of a gang is reached. Each pod has its own address, so all can use the
// same port.
const podPort = 29500

// The keys of an attempt's Secret.
const (
	secretCapability = "capability"
	secretToken      = "token"
	// secretMark is what the processes of the attempt are found by. It follows from the token, which pods know by
	// reference alone.
	secretMark = "mark"
	// tokenVariable brings the token into the address of the job API.
	tokenVariable = "SWITCHYARD_JOB_TOKEN"
)

// podTemplate is everything the pods of one attempt are made from.
type podTemplate struct {
	launch.Setting
	key       key
	processes []launch.Process
	volumes   volumes
	options   Options
	killAfter time.Duration
	owner     metav1.OwnerReference
	// order is for the container that fetches the data of a pod.
	order staging.Order
}

// newPodTemplate determines the processes of an attempt and where they meet.
func newPodTemplate(s launch.Setting, k key, t Options, killAfter time.Duration) (podTemplate, error) {
	s.Mounted = true
	if s.Spec.DataURL != "" {
		s.Staged = launch.DataTarget
	}
	s.Places = slices.Clone(s.Places)
	if s.Spec.Launch == train.LaunchPerDevice {
		s.Places = splitByDevice(s.Places)
	}
	for i := range s.Places {
		s.Places[i].Node.JobAPISocket = "" // a pod cannot use a socket of the node
	}
	if s.Spec.Image == "" {
		s.Spec.Image = t.Image
	}
	r := podTemplate{Setting: s, key: k, options: t, killAfter: killAfter, processes: s.Processes()}
	for rank := range r.processes {
		r.Ports = append(r.Ports, podPort)
		if len(r.processes) > 1 {
			r.Addresses = append(r.Addresses, r.key.pod(rank)+"."+r.key.rendezvous())
		}
	}
	if why := startsOthers(s); why != "" {
		return r, errors.New(why) //nolint:err113 // the words are for the job's owner
	}
	if s.Spec.Shell != nil {
		return r, errNoShell
	}
	if err := mayFetch(s.Spec, t); err != nil {
		return r, err
	}
	if why := allowsMemory(t, s.Spec.MainMemoryMiB); why != "" {
		return r, fmt.Errorf("main_memory_mib %d: %s", s.Spec.MainMemoryMiB, why) //nolint:err113 // the words are for the job's owner
	}
	if servers := s.Spec.ParameterServers; servers != nil {
		if why := allowsMemory(t, servers.MemoryMiB); why != "" {
			return r, fmt.Errorf("parameter_servers.memory_mib %d: %s", servers.MemoryMiB, why) //nolint:err113 // the words are for the job's owner
		}
	}
	var err error
	r.volumes, err = composeVolumes(s, t)
	return r, err
}

var errNoShell = errors.New("a pod has no terminal to attach to: keep the job off the nodes of Kubernetes (node_labels)")

// startsOthers says why a gang over several pods cannot begin with a program that starts processes on other machines
// itself; it is empty for others. The program could not enter the other pods, and each would train for itself.
func startsOthers(s launch.Setting) string {
	if len(s.Places) < 2 || len(s.Spec.Command) == 0 {
		return ""
	}
	program := path.Base(s.Spec.Command[0])
	if !slices.Contains([]string{"mpirun", "mpiexec", "horovodrun"}, program) {
		return ""
	}
	return fmt.Sprintf("%s cannot start processes in other pods, and the job has devices in %d of them: "+
		"ask for no more devices than a node has (max_devices), leave out launch: per_device, or use torchrun", program, len(s.Places))
}

// splitByDevice makes a place of every device: a pod sees only its own device, so to the code each pod is a node with
// one device.
func splitByDevice(places []launch.Place) []launch.Place {
	var all []launch.Place
	for _, p := range places {
		for i, d := range p.Devices {
			split := launch.Place{Node: p.Node, Devices: []train.Device{d}, Memory: p.Memory}
			if i == 0 {
				split.Servers = p.Servers
			}
			all = append(all, split)
		}
	}
	return all
}

// pod composes the pod of a rank. rendezvousIP is the address of the first pod, for the later ones.
func (t podTemplate) pod(rank int, rendezvousIP string) *corev1.Pod {
	p := t.processes[rank]
	name := t.key.pod(rank)
	grace := int64(math.Ceil(t.killAfter.Seconds()))
	no, yes := false, true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: t.key.namespace, Labels: t.key.podLabels(t.Attempt.Generation, rank, p.Role),
			Annotations: map[string]string{
				annotationJob: string(t.Job), annotationRanks: strconv.Itoa(len(t.processes)),
				annotationSlots: strconv.Itoa(slotsOf(p.Devices)),
			},
			Finalizers: []string{finalizer}, OwnerReferences: []metav1.OwnerReference{t.owner},
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
			Affinity: pinnedTo(t.Places[p.Place].Node.Name), Volumes: t.volumes.sources,
			Tolerations:     tolerations(t.options.Tolerate),
			SecurityContext: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "job", Image: t.Spec.Image, ImagePullPolicy: corev1.PullPolicy(t.options.PullPolicy), Command: t.command(), WorkingDir: t.workDir(),
				Env: t.environment(rank), VolumeMounts: t.volumes.mounts, Resources: t.resources(p),
				SecurityContext:          &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
				TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			}},
		},
	}
	t.claiming(pod, rank)
	t.fetching(pod)
	if t.options.RunAsUser >= 0 {
		user := int64(t.options.RunAsUser)
		pod.Spec.SecurityContext.RunAsUser = &user
		pod.Spec.SecurityContext.RunAsNonRoot = &yes
		if t.options.RunAsUser == 0 {
			pod.Spec.SecurityContext.RunAsNonRoot = nil
		} else {
			// The kubelet gives claims to this group, so that the job can save.
			changed := corev1.FSGroupChangeOnRootMismatch
			pod.Spec.SecurityContext.FSGroup, pod.Spec.SecurityContext.FSGroupChangePolicy = &user, &changed
		}
	}
	if len(t.Spec.Ports) > 0 && rank == t.firstWorker() {
		pod.Labels[labelPorts] = "true"
	}
	if len(t.processes) > 1 {
		pod.Spec.Hostname, pod.Spec.Subdomain = name, t.key.rendezvous()
	}
	if rendezvousIP != "" {
		// The rendezvous is found even without DNS.
		pod.Spec.HostAliases = []corev1.HostAlias{{IP: rendezvousIP, Hostnames: []string{t.Addresses[0]}}}
	} else if len(t.processes) > 1 {
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, ownAddress(t.processes[0].Role)...)
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

// ownAddress gives the first process the rendezvous as an IP address: its own name may not be resolvable in its own
// pod.
func ownAddress(role launch.Role) []corev1.EnvVar {
	names := []string{"MASTER_ADDR"}
	if role == launch.RoleScheduler {
		names = append(names, "DMLC_PS_ROOT_URI")
	}
	var env []corev1.EnvVar
	for _, n := range names {
		env = append(env, corev1.EnvVar{Name: n, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}})
	}
	return env
}

// pinnedTo requires a node. Unlike nodeName, it leaves the check for room to the scheduler: the pod then waits
// instead of failing for good.
func pinnedTo(node string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}},
	}}}
}

// literal protects a text from the kubelet, which would replace $(NAME).
func literal(text string) string { return strings.ReplaceAll(text, "$(", "$$(") }

func (t podTemplate) command() []string {
	args := t.Spec.Command
	if t.Spec.ScriptPath != "" {
		args = []string{"python", t.Spec.ScriptPath}
	}
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = literal(a)
	}
	return words
}

func (t podTemplate) workDir() string {
	if t.Spec.WorkDir == "" && t.Spec.CustomDir != "" {
		return launch.CustomTarget
	}
	return t.Spec.WorkDir
}

// environment is the job's own and the scheduler's, with secrets by reference.
func (t podTemplate) environment(rank int) []corev1.EnvVar {
	s := t.Setting
	s.Token = "$(" + tokenVariable + ")"
	values := map[string]string{"PYTHONUNBUFFERED": "1"}
	for name, value := range t.Spec.Env {
		if t.Spec.SecretEnv[name] == "" {
			values[name] = literal(value)
		}
	}
	scheduler := s.Scheduler(rank)
	// The visible devices of a container are set here, where all of them are known: if two device plugins set them,
	// one would win. The plugin of all GPUs sets them itself, since it alone knows which ones the kubelet has chosen.
	// For claims, what the driver sets counts.
	gpus := launch.Place{Devices: t.processes[rank].Devices}.GPUs()
	scheduler["NVIDIA_VISIBLE_DEVICES"], scheduler["CUDA_VISIBLE_DEVICES"] = uuids(gpus), launch.Inside(gpus)
	if address := scheduler["DATA_URL"]; address != "" {
		scheduler["DATA_URL"] = literal(address)
	}
	delete(scheduler, "JOB_UUID")
	delete(scheduler, "SWITCHYARD_JOB_SOCKET")
	maps.Copy(values, scheduler)
	if train.Weakest(gpus) == train.GivenWhole && gpus[0].Class == "" {
		delete(values, "NVIDIA_VISIBLE_DEVICES")
	}
	if len(t.processes) > 1 && rank == 0 {
		delete(values, "MASTER_ADDR")
		delete(values, "DMLC_PS_ROOT_URI")
	}
	delete(values, tokenVariable)
	delete(values, train.MarkVariable)
	env := append([]corev1.EnvVar{
		t.secret("JOB_UUID", secretCapability), t.secret(tokenVariable, secretToken), t.secret(train.MarkVariable, secretMark),
	}, t.secretVariables()...)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if name != "JOB_UUID" {
			env = append(env, corev1.EnvVar{Name: name, Value: values[name]})
		}
	}
	return env
}

func (t podTemplate) secret(variable, name string) corev1.EnvVar {
	return corev1.EnvVar{Name: variable, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: t.key.base()}, Key: name,
	}}}
}

// uuids returns the GPUs of a container as the driver's hook expects them.
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
