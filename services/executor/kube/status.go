package kube

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// view is what the backend knows about the pods of one attempt.
type view struct {
	attempt train.Attempt
	// pods are ordered by rank.
	pods []*corev1.Pod
	// lost reports whether a node has not been ready for too long.
	lost func(node string) bool
	// waited is how long pods have been waited for.
	waited time.Duration
	limits Options
}

// failure is the end of a pod that ends its attempt.
type failure struct {
	exit train.Exit
	at   time.Time
}

// lostFor is the exit of an attempt that is lost for a reason.
func lostFor(code, hint, format string, args ...any) train.Exit {
	return train.Exit{Lost: true, Reason: train.Reason{Code: code, Message: fmt.Sprintf(format, args...), Hint: hint}}
}

// unstartedFor is the exit of an attempt that never ran as a whole.
func unstartedFor(code, format string, args ...any) train.Exit {
	exit := lostFor(code, "", format, args...)
	exit.Unstarted = true
	return exit
}

// ranks returns how many pods the complete attempt has.
func (v view) ranks() int {
	n := 0
	for _, p := range v.pods {
		if ranks, err := strconv.Atoi(p.Annotations[annotationRanks]); err == nil {
			n = max(n, ranks)
		}
	}
	return n
}

// tally sums up the pods of an attempt.
type tally struct {
	running, done int
	workersLeft   bool
	allStarted    bool
	// startedAt and exitedAt are the latest times of all pods.
	startedAt, exitedAt time.Time
}

func (v view) tally() tally {
	t := tally{allStarted: true}
	for _, p := range v.pods {
		started, finished := times(p)
		t.allStarted = t.allStarted && !started.IsZero()
		t.startedAt, t.exitedAt = later(t.startedAt, started), later(t.exitedAt, finished)
		if v.done(p) {
			t.done++
			continue
		}
		if p.Status.Phase == corev1.PodRunning {
			t.running++
		}
		t.workersLeft = t.workersLeft || launch.Role(p.Labels[labelRole]) == launch.RoleWorker
	}
	return t
}

// status returns how far an attempt has got. It must not be called without pods. A status that ends something has to
// be confirmed by the API server.
func (v view) status() launch.Status {
	t, n := v.tally(), len(v.pods)
	s := launch.Status{Present: n, ExitedAt: t.exitedAt}
	complete := n == v.ranks()
	if complete && t.allStarted {
		s.StartedAt = t.startedAt
	}
	exit, ending := v.end()
	ending = ending || complete && !t.workersLeft
	switch {
	case ending && t.done == n:
		s.Phase, s.Exit = launch.Exited, exit
	case ending:
		s.Phase, s.Exit = launch.Ending, exit
	case !complete && v.canCreateRest():
		s.Phase = launch.Absent
	case complete && t.running+t.done == n:
		s.Phase = launch.Running
	default:
		s.Phase = launch.Starting
	}
	return s
}

// canCreateRest reports whether the pods after the first can be created, that is, whether its address is known.
func (v view) canCreateRest() bool {
	return rankOf(v.pods[0]) != 0 || v.pods[0].Status.PodIP != ""
}

// end reports whether the attempt has to end, and with which exit.
func (v view) end() (train.Exit, bool) {
	if v.attempt.Ending != nil {
		return *v.attempt.Ending, true
	}
	var first *failure
	for _, p := range v.pods {
		t := v.failure(p)
		if t != nil && (first == nil || t.at.Before(first.at)) {
			first = t
		}
	}
	switch {
	case first != nil:
		return first.exit, true
	case v.attempt.Phase == train.PhaseRunning && len(v.pods) < v.ranks():
		return v.missing(), true
	}
	return v.overdue()
}

// missing is the exit of an attempt that ran and has lost some of its pods.
func (v view) missing() train.Exit {
	return lostFor("PodDeleted", "", "pods of the attempt and their finalizers were removed by another client")
}

// done reports whether nothing of a pod runs any more, or ever will.
func (v view) done(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return true
	}
	return p.DeletionTimestamp != nil && (p.Spec.NodeName == "" || v.lost(p.Spec.NodeName))
}

// failure returns how a pod failed, or why it has to end.
func (v view) failure(p *corev1.Pod) *failure {
	if end := terminated(p); end != nil {
		return v.containerEnd(p, end)
	}
	if f := notFetched(p); f != nil {
		return f
	}
	asked := deletedAt(p)
	ours := v.attempt.Stop != train.StopNone
	switch reason := disrupted(p); {
	case reason.Code != "" && (p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil):
		return &failure{train.Exit{Lost: true, Unstarted: refused(p), Reason: reason}, asked}
	case p.Status.Phase == corev1.PodFailed:
		return &failure{podFailed(p), asked}
	case p.DeletionTimestamp != nil && ours:
		if v.done(p) {
			return &failure{train.Exit{Forced: true, Signal: "SIGTERM"}, asked}
		}
		return nil
	case p.DeletionTimestamp != nil:
		return &failure{deletedByOthers(p), asked}
	case v.lost(p.Spec.NodeName):
		return &failure{exit: lostFor("NodeLost", "look at the node; what runs there ends when it comes back",
			"node %s has been silent for more than %s", p.Spec.NodeName, v.limits.NodeLostAfter)}
	}
	return neverStarts(p)
}

func podFailed(p *corev1.Pod) train.Exit {
	return lostFor("PodFailed", "", "pod %s failed: %s", p.Name, words(p.Status.Reason, p.Status.Message))
}

// deletedByOthers is the end of a pod that another client deleted.
func deletedByOthers(p *corev1.Pod) train.Exit {
	return lostFor("PodDeleted", "switchyard cancel ends a job for good", "pod %s was deleted by another client", p.Name)
}

// containerEnd reads the end of the container, which is more precise than the pod's.
func (v view) containerEnd(p *corev1.Pod, end *corev1.ContainerStateTerminated) *failure {
	t := &failure{at: end.FinishedAt.Time}
	asked := p.DeletionTimestamp != nil && !deletedAt(p).After(t.at)
	why := disrupted(p)
	switch {
	case end.ExitCode == 0 && !asked && p.Status.Phase != corev1.PodFailed:
		return nil // a program that its kubelet ends early may exit with 0, too
	case end.Reason == "OOMKilled":
		t.exit = train.Exit{Signal: "SIGKILL", Reason: train.Reason{
			Code: train.OutOfMemory, Message: "killed because it ran out of main memory" + memoryLimit(p), Hint: "use smaller batches or fewer data loaders, or ask the operator for another executor.pod_memory_limit",
		}}
	case why.Code != "":
		t.exit, t.at = train.Exit{Lost: true, Reason: why}, earlier(t.at, deletedAt(p))
	case slices.Contains([]string{"StartError", "ContainerCannotRun"}, end.Reason):
		t.exit = train.Exit{Code: launch.CannotStart, Message: "cannot start: " + firstLine(end.Message)}
	case asked && v.attempt.Stop != train.StopNone:
		t.exit = exitOf(end.ExitCode)
		t.exit.Forced = true
	case asked && v.attempt.Ending == nil:
		t.exit, t.at = deletedByOthers(p), deletedAt(p)
	case end.ExitCode == 0:
		t.exit = podFailed(p)
	case slices.Contains([]string{"Unknown", "ContainerStatusUnknown"}, end.Reason):
		t.exit = lostFor("AttemptLost", "", "node %s has restarted, and nothing there knows how pod %s ended", p.Spec.NodeName, p.Name)
	default:
		t.exit = exitOf(end.ExitCode)
	}
	if t.exit.Message == "" {
		t.exit.LogTail = end.Message // the end of the log, if the container has failed
	}
	return t
}

func memoryLimit(p *corev1.Pod) string {
	if limit, set := p.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory]; set {
		return fmt.Sprintf(": the limit is %s", limit.String())
	}
	return " on node " + p.Spec.NodeName
}

// signalOf returns the signal in an exit status as shells and container runtimes encode it.
func signalOf(code int32) string {
	const killed = 128
	if code <= killed {
		return ""
	}
	return unix.SignalName(unix.Signal(code - killed))
}

// exitOf is the exit of a program with an exit status.
func exitOf(code int32) train.Exit {
	if signal := signalOf(code); signal != "" {
		return train.Exit{Signal: signal}
	}
	return train.Exit{Code: int(code)}
}

// disrupted returns why Kubernetes ended a pod, if it did.
func disrupted(p *corev1.Pod) train.Reason {
	evictions, refusals := []string{"Evicted", "Preempting", "Terminated"}, []string{"UnexpectedAdmissionError", "NodeAffinity", "NodeShutdown"}
	switch why := p.Status.Reason; {
	case slices.Contains(evictions, why):
		return train.Reason{Code: "Evicted", Message: fmt.Sprintf("node %s evicted the pod: %s", p.Spec.NodeName, firstLine(p.Status.Message))}
	case strings.HasPrefix(why, "OutOf") || slices.Contains(refusals, why):
		return train.Reason{Code: "NodeRefused", Message: fmt.Sprintf("node %s refused the pod: %s", p.Spec.NodeName, words(why, p.Status.Message))}
	}
	if c := condition(p, corev1.DisruptionTarget); c.Type != "" {
		return train.Reason{Code: "Evicted", Message: fmt.Sprintf("pod %s was evicted: %s", p.Name, words(c.Reason, c.Message))}
	}
	return train.Reason{}
}

// refused reports whether the kubelet rejected the pod, so nothing of it ran.
func refused(p *corev1.Pod) bool {
	return disrupted(p).Code == "NodeRefused" && len(p.Status.ContainerStatuses) == 0
}

// neverStarts returns the failure of a pod that cannot start however long it waits.
func neverStarts(p *corev1.Pod) *failure {
	missing := func(hint, format string, args ...any) *failure {
		return &failure{exit: train.Exit{Code: launch.CannotStart, Reason: train.Reason{Code: "ImageMissing", Message: fmt.Sprintf(format, args...), Hint: hint}}}
	}
	w, image := waiting(p)
	switch w.Reason {
	case "ErrImageNeverPull":
		return missing("load the image on the nodes, or ask the operator for another executor.pod_image_pull_policy",
			"image %s is not on node %s, and nodes must not pull it", image, p.Spec.NodeName)
	case "InvalidImageName":
		return missing("correct the submission and submit it under another id", "%q is not a valid image name", image)
	}
	return nil
}

// imageTime is how long the kubelet may retry to pull an image.
const imageTime = time.Minute

// overdue returns the exit of an attempt whose pods do not run in time.
func (v view) overdue() (train.Exit, bool) {
	if v.fetchingNow() {
		return train.Exit{}, false
	}
	var pending []*corev1.Pod
	for _, p := range v.pods {
		if p.Status.Phase == corev1.PodPending {
			pending = append(pending, p)
		}
	}
	if len(pending) == 0 {
		return v.incomplete()
	}
	if why := unschedulable(pending); why.Code != "" && v.waited > v.limits.ScheduleLimit {
		return train.Exit{Lost: true, Unstarted: true, Reason: why}, true
	}
	first := pending[0]
	w, image := waiting(first)
	noImage := strings.Contains(w.Reason, "Image")
	switch {
	case noImage && v.waited > min(imageTime, v.limits.StartLimit):
		return lostFor("ImageMissing", "is the name right, and may the nodes pull it?",
			"node %s cannot pull %s: %s", first.Spec.NodeName, image, firstLine(w.Message)), true
	case v.waited > v.limits.StartLimit:
		return unstartedFor("GangIncomplete", "%d of %d pods did not run after %s; %s: %s",
			len(pending), v.ranks(), v.limits.StartLimit, first.Name, words(w.Reason, w.Message)), true
	}
	return train.Exit{}, false
}

// incomplete returns the exit of a gang some of whose pods could not be created in time.
func (v view) incomplete() (train.Exit, bool) {
	if v.attempt.Phase != train.PhaseClaimed || len(v.pods) >= v.ranks() || v.waited <= v.limits.StartLimit {
		return train.Exit{}, false
	}
	return unstartedFor("GangIncomplete", "only %d of %d pods could be created in %s", len(v.pods), v.ranks(), v.limits.StartLimit), true
}

// unschedulable returns why the scheduler finds no node for one of the pods, if so.
func unschedulable(pods []*corev1.Pod) train.Reason {
	for _, p := range pods {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				why := train.Reason{Code: "Unschedulable", Message: fmt.Sprintf("pod %s cannot be scheduled: %s", p.Name, firstLine(c.Message))}
				if strings.Contains(c.Message, "persistentvolumeclaim") {
					why.Hint = "the claims that the job's folders come from must be in the namespace " + p.Namespace
				}
				return why
			}
		}
	}
	return train.Reason{}
}

// terminated returns the end of the container, nil while there is none.
func terminated(p *corev1.Pod) *corev1.ContainerStateTerminated {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Terminated != nil {
			return c.State.Terminated
		}
	}
	return nil
}

// waiting returns why the first container of a pod that waits does so, and its image.
func waiting(p *corev1.Pod) (why corev1.ContainerStateWaiting, image string) {
	specs := slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
	for i, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.State.Waiting != nil && i < len(specs) {
			return *c.State.Waiting, specs[i].Image
		}
	}
	return corev1.ContainerStateWaiting{}, p.Spec.Containers[0].Image
}

// times returns when the container started and finished, as far as known.
func times(p *corev1.Pod) (started, finished time.Time) {
	for _, c := range p.Status.ContainerStatuses {
		switch {
		case c.State.Running != nil:
			started = c.State.Running.StartedAt.Time
		case c.State.Terminated != nil:
			started, finished = c.State.Terminated.StartedAt.Time, c.State.Terminated.FinishedAt.Time
		}
	}
	return started, finished
}

// deletedAt returns when the deletion of a pod was requested; its timestamp is when the grace period runs out.
func deletedAt(p *corev1.Pod) time.Time {
	if p.DeletionTimestamp == nil {
		return time.Time{}
	}
	if p.DeletionGracePeriodSeconds == nil {
		return p.DeletionTimestamp.Time
	}
	return p.DeletionTimestamp.Add(-time.Duration(*p.DeletionGracePeriodSeconds) * time.Second)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if b.IsZero() || a.Before(b) {
		return a
	}
	return b
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	const most = 300
	if len(line) > most {
		line = strings.ToValidUTF8(line[:most], "") + "…"
	}
	return line
}

// words joins a code and its message.
func words(code, message string) string {
	return strings.Join(slices.DeleteFunc([]string{code, firstLine(message)}, func(s string) bool { return s == "" }), ": ")
}

// HandOver has nothing to give: no folder of a pod outlives it.
func (b *Backend) HandOver(context.Context, train.Attempt, string) (*train.Unreported, error) {
	return nil, nil
}
