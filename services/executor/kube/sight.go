package kube

import (
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

// view is what is known of the pods of one attempt.
type view struct {
	attempt train.Attempt
	// pods are ordered by rank.
	pods []*corev1.Pod
	// lost says that a node has been silent for too long.
	lost func(node string) bool
	// waited is how long pods have been waited for.
	waited time.Duration
	limits Options
}

// trouble is the end of a pod that ends its attempt.
type trouble struct {
	exit train.Exit
	at   time.Time
}

// ranks is how many pods the attempt has when it is complete.
func (v view) ranks() int {
	n := 0
	for _, p := range v.pods {
		if ranks, err := strconv.Atoi(p.Annotations[annotationRanks]); err == nil {
			n = max(n, ranks)
		}
	}
	return n
}

// sight reads how far an attempt has come. It is not asked without pods. A sight that ends something has to be confirmed by the API server.
func (v view) sight() launch.Sight {
	s := launch.Sight{Present: len(v.pods)}
	running, ended, workersLeft, allStarted := 0, 0, false, true
	for _, p := range v.pods {
		started, finished := times(p)
		allStarted = allStarted && !started.IsZero()
		s.StartedAt = later(s.StartedAt, started)
		s.ExitedAt = later(s.ExitedAt, finished)
		switch {
		case v.over(p):
			ended++
		case p.Status.Phase == corev1.PodRunning:
			running++
		}
		workersLeft = workersLeft || !v.over(p) && launch.Role(p.Labels[labelRole]) == launch.RoleWorker
	}
	complete := len(v.pods) == v.ranks()
	if !complete || !allStarted {
		s.StartedAt = time.Time{}
	}
	exit, ending := v.end()
	ending = ending || complete && !workersLeft
	switch {
	case ending && ended == len(v.pods):
		s.Phase, s.Exit = launch.Exited, exit
	case ending:
		s.Phase, s.Exit = launch.Ending, exit
	case !complete && v.mayGoOn():
		s.Phase = launch.Absent
	case complete && running+ended == len(v.pods):
		s.Phase = launch.Running
	default:
		s.Phase = launch.Starting
	}
	return s
}

// mayGoOn says whether the pods after the first can be made: its address is known.
func (v view) mayGoOn() bool {
	return rankOf(v.pods[0]) != 0 || v.pods[0].Status.PodIP != ""
}

// end says that the attempt has to end, and how it will have ended.
func (v view) end() (train.Exit, bool) {
	if v.attempt.Ending != nil {
		return *v.attempt.Ending, true
	}
	var first *trouble
	for _, p := range v.pods {
		t := v.trouble(p)
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
	return v.late()
}

// missing is the end of an attempt that ran and some pods of which are no longer there.
func (v view) missing() train.Exit {
	return train.Exit{Lost: true, Reason: train.Reason{Code: "PodDeleted", Message: "pods of the attempt were removed by somebody else, their finalizer too"}}
}

// over says that nothing of a pod runs any more, or ever will.
func (v view) over(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return true
	}
	return p.DeletionTimestamp != nil && (p.Spec.NodeName == "" || v.lost(p.Spec.NodeName))
}

// trouble says how a pod ended other than well, or why it has to.
func (v view) trouble(p *corev1.Pod) *trouble {
	if end := terminated(p); end != nil {
		return v.containerEnd(p, end)
	}
	asked := deletedAt(p)
	ours := v.attempt.Stop != train.StopNone
	switch reason := disrupted(p); {
	case reason.Code != "" && (p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil):
		return &trouble{train.Exit{Lost: true, Unstarted: refused(p), Reason: reason}, asked}
	case p.Status.Phase == corev1.PodFailed:
		return &trouble{train.Exit{Lost: true, Reason: train.Reason{
			Code: "PodFailed", Message: fmt.Sprintf("pod %s failed: %s", p.Name, words(p.Status.Reason, p.Status.Message)),
		}}, asked}
	case p.DeletionTimestamp != nil && ours:
		if v.over(p) {
			return &trouble{train.Exit{Forced: true, Signal: "SIGTERM"}, asked}
		}
		return nil
	case p.DeletionTimestamp != nil:
		return &trouble{byHand(p), asked}
	case v.lost(p.Spec.NodeName):
		return &trouble{train.Exit{Lost: true, Reason: train.Reason{
			Code: "NodeLost", Message: fmt.Sprintf("node %s has been silent for more than %s", p.Spec.NodeName, v.limits.NodeLostAfter),
			Hint: "look at the node; what runs there is ended when it comes back",
		}}, time.Time{}}
	}
	return hopeless(p)
}

// byHand is the end of a pod that somebody else has deleted.
func byHand(p *corev1.Pod) train.Exit {
	return train.Exit{Lost: true, Reason: train.Reason{
		Code: "PodDeleted", Message: fmt.Sprintf("pod %s was deleted by somebody else", p.Name), Hint: "switchyard cancel ends a job for good",
	}}
}

// containerEnd reads the end of the container, which tells more than the pod's.
func (v view) containerEnd(p *corev1.Pod, end *corev1.ContainerStateTerminated) *trouble {
	t := &trouble{at: end.FinishedAt.Time}
	asked := p.DeletionTimestamp != nil && !deletedAt(p).After(t.at)
	why := disrupted(p)
	switch {
	case end.ExitCode == 0 && !asked:
		return nil
	case end.Reason == "OOMKilled":
		t.exit = train.Exit{Signal: "SIGKILL", Reason: train.Reason{
			Code: "OutOfMemory", Message: "killed for want of main memory" + memoryLimit(p), Hint: "use smaller batches or fewer loaders of data, or ask the operator for --pod-memory-limit",
		}}
	case why.Code != "":
		t.exit, t.at = train.Exit{Lost: true, Reason: why}, earlier(t.at, deletedAt(p))
	case end.Reason == "StartError" || end.Reason == "ContainerCannotRun":
		t.exit = train.Exit{Code: launch.CannotStart, Message: "cannot start: " + firstLine(end.Message)}
	case asked && v.attempt.Stop != train.StopNone:
		t.exit = train.Exit{Forced: true, Signal: signalOf(end.ExitCode)}
		if t.exit.Signal == "" {
			t.exit.Code = int(end.ExitCode)
		}
	case asked && v.attempt.Ending == nil:
		t.exit, t.at = byHand(p), deletedAt(p)
	case signalOf(end.ExitCode) != "":
		t.exit = train.Exit{Signal: signalOf(end.ExitCode)}
	default:
		t.exit = train.Exit{Code: int(end.ExitCode)}
	}
	if t.exit.Message == "" {
		t.exit.LogTail = end.Message // the end of the log, where the container has failed
	}
	return t
}

func memoryLimit(p *corev1.Pod) string {
	if limit, set := p.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory]; set {
		return fmt.Sprintf(": the limit is %s", limit.String())
	}
	return " on node " + p.Spec.NodeName
}

// signalOf names the signal of an exit status as shells and container runtimes give it.
func signalOf(code int32) string {
	const killed = 128
	if code <= killed {
		return ""
	}
	return unix.SignalName(unix.Signal(code - killed))
}

// disrupted says who has ended a pod, if it was Kubernetes.
func disrupted(p *corev1.Pod) train.Reason {
	switch p.Status.Reason {
	case "Evicted":
		return train.Reason{Code: "Evicted", Message: fmt.Sprintf("node %s evicted the pod: %s", p.Spec.NodeName, firstLine(p.Status.Message))}
	case "UnexpectedAdmissionError", "OutOfcpu", "OutOfmemory", "OutOfpods", "NodeAffinity", "Terminated", "NodeShutdown", "OutOfephemeral-storage":
		return train.Reason{Code: "NodeRefused", Message: fmt.Sprintf("node %s refused the pod: %s", p.Spec.NodeName, words(p.Status.Reason, p.Status.Message))}
	}
	if strings.HasPrefix(p.Status.Reason, "OutOf") {
		return train.Reason{Code: "NodeRefused", Message: fmt.Sprintf("node %s refused the pod: %s", p.Spec.NodeName, words(p.Status.Reason, p.Status.Message))}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return train.Reason{Code: "Evicted", Message: fmt.Sprintf("pod %s was evicted: %s", p.Name, words(c.Reason, c.Message))}
		}
	}
	return train.Reason{}
}

// refused says that the kubelet did not take the pod: nothing of it ran.
func refused(p *corev1.Pod) bool {
	return disrupted(p).Code == "NodeRefused" && len(p.Status.ContainerStatuses) == 0
}

// hopeless is a pod that will never run whatever is waited for.
func hopeless(p *corev1.Pod) *trouble {
	w := waiting(p)
	image := p.Spec.Containers[0].Image
	switch w.Reason {
	case "ErrImageNeverPull":
		return &trouble{train.Exit{Code: launch.CannotStart, Reason: train.Reason{
			Code: "ImageMissing", Message: fmt.Sprintf("image %s is not on node %s, and nodes may not pull it", image, p.Spec.NodeName),
			Hint: "load the image on the nodes, or ask the operator for another --pod-image-pull-policy",
		}}, time.Time{}}
	case "InvalidImageName":
		return &trouble{train.Exit{Code: launch.CannotStart, Reason: train.Reason{
			Code: "ImageMissing", Message: fmt.Sprintf("%q cannot name an image", image), Hint: "correct the submission and submit it under another id",
		}}, time.Time{}}
	}
	return nil
}

// imagePatience is how long the kubelet may try to pull an image again after it could not.
const imagePatience = time.Minute

// late says that pods do not run after the time that they had.
func (v view) late() (train.Exit, bool) {
	var stuck *corev1.Pod
	unscheduled, n := train.Reason{}, 0
	for _, p := range v.pods {
		if p.Status.Phase != corev1.PodPending {
			continue
		}
		n++
		if stuck == nil {
			stuck = p
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && unscheduled.Code == "" {
				unscheduled = train.Reason{Code: "Unschedulable", Message: fmt.Sprintf("node has no room for pod %s: %s", p.Name, firstLine(c.Message))}
			}
		}
	}
	switch {
	case stuck == nil && v.attempt.Phase == train.PhaseClaimed && len(v.pods) < v.ranks() && v.waited > v.limits.StartLimit:
		return train.Exit{Lost: true, Unstarted: true, Reason: train.Reason{
			Code: "GangIncomplete", Message: fmt.Sprintf("only %d of %d pods could be made in %s", len(v.pods), v.ranks(), v.limits.StartLimit),
		}}, true
	case stuck == nil:
		return train.Exit{}, false
	case unscheduled.Code != "" && v.waited > v.limits.ScheduleLimit:
		return train.Exit{Lost: true, Unstarted: true, Reason: unscheduled}, true
	}
	w := waiting(stuck)
	noImage := strings.Contains(w.Reason, "Image")
	if v.waited <= v.limits.StartLimit && !(noImage && v.waited > imagePatience) {
		return train.Exit{}, false
	}
	if noImage {
		return train.Exit{Lost: true, Reason: train.Reason{
			Code: "ImageMissing", Message: fmt.Sprintf("node %s cannot pull %s: %s", stuck.Spec.NodeName, stuck.Spec.Containers[0].Image, firstLine(w.Message)),
			Hint: "is the name right, and may the nodes pull it?",
		}}, true
	}
	return train.Exit{Lost: true, Unstarted: true, Reason: train.Reason{
		Code: "GangIncomplete", Message: fmt.Sprintf("%d of %d pods did not run after %s; %s: %s", n, v.ranks(), v.limits.StartLimit, stuck.Name, words(w.Reason, w.Message)),
	}}, true
}

// terminated is the end of the container, nil while there is none.
func terminated(p *corev1.Pod) *corev1.ContainerStateTerminated {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Terminated != nil {
			return c.State.Terminated
		}
	}
	return nil
}

func waiting(p *corev1.Pod) corev1.ContainerStateWaiting {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Waiting != nil {
			return *c.State.Waiting
		}
	}
	return corev1.ContainerStateWaiting{}
}

// times are when the container started and when it finished, as far as is known.
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

// deletedAt is when the deletion of a pod was asked for: its timestamp is when the grace runs out.
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

// words joins a code and what it means.
func words(code, message string) string {
	return strings.Join(slices.DeleteFunc([]string{code, firstLine(message)}, func(s string) bool { return s == "" }), ": ")
}
