package kube

import (
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// member is a pod of a gang of two, with what has happened to it.
func member(rank int, happened ...func(*corev1.Pod)) *corev1.Pod {
	k := key{"jobs", "j", 1}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: k.pod(rank), Namespace: k.namespace, Labels: k.podLabels(1, rank, launch.RoleWorker), Annotations: map[string]string{annotationJob: "j", annotationRanks: "2"},
		},
		Spec:   corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Image: "trainer:1"}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, h := range happened {
		h(p)
	}
	return p
}

func runs(p *corev1.Pod) {
	p.Status.Phase, p.Status.PodIP = corev1.PodRunning, "10.0.0.1"
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon)}}}}
}

func ends(code int32, reason string, after time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodFailed
		if code == 0 {
			p.Status.Phase = corev1.PodSucceeded
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Reason: reason, Message: "the last words", StartedAt: metav1.NewTime(noon), FinishedAt: metav1.NewTime(noon.Add(after)),
		}}}}
	}
}

func waits(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "why"}}}}
	}
}

// deleted requests the deletion of a pod, with 5 s of grace.
func deleted(after time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		at, grace := metav1.NewTime(noon.Add(after+5*time.Second)), int64(5)
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
	}
}

func fails(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, reason, message
	}
}

func unscheduled(p *corev1.Pod) { unscheduledFor("Insufficient gpu")(p) }

func unscheduledFor(why string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.NodeName = ""
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: why}}
	}
}

func disruptedBy(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: "drained"}}
	}
}

func on(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

func role(r launch.Role) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[labelRole] = string(r) }
}

// Everything that may happen to the pods of a gang, and the resulting status of the attempt.
func TestStatus(t *testing.T) {
	running := train.Attempt{Job: "j", Number: 1, Phase: train.PhaseRunning}
	claimed := train.Attempt{Job: "j", Number: 1, Phase: train.PhaseClaimed}
	asked, cancelled, ending := running, running, running
	asked.Stop, cancelled.Stop, ending.Ending = train.StopPreempt, train.StopCancel, &train.Exit{Lost: true, Reason: train.Reason{Code: "NodeLost"}}
	const soon, late = time.Second, time.Hour
	tests := []struct {
		name    string
		attempt train.Attempt
		waited  time.Duration
		pods    []*corev1.Pod
		phase   launch.Phase
		// exit is a summary of the exit.
		exit string
	}{
		{"the first has no address", claimed, soon, []*corev1.Pod{member(0)}, launch.Starting, ""},
		{"the first has an address", claimed, soon, []*corev1.Pod{member(0, runs)}, launch.Absent, ""},
		{"one waits", claimed, soon, []*corev1.Pod{member(0, runs), member(1)}, launch.Starting, ""},
		{"all run", claimed, soon, []*corev1.Pod{member(0, runs), member(1, runs)}, launch.Running, ""},
		{"one is done", running, soon, []*corev1.Pod{member(0, ends(0, "Completed", soon)), member(1, runs)}, launch.Running, ""},
		{"all are done", running, soon, []*corev1.Pod{member(0, ends(0, "", soon)), member(1, ends(0, "", soon))}, launch.Exited, "0"},
		{"one fails", running, soon, []*corev1.Pod{member(0, ends(3, "Error", soon)), member(1, runs)}, launch.Ending, "3 the last words"},
		{"the first failure counts", running, soon, []*corev1.Pod{member(0, ends(1, "Error", 9*soon)), member(1, ends(3, "Error", soon))}, launch.Exited, "3"},
		{"killed", running, soon, []*corev1.Pod{member(0, ends(137, "Error", soon)), member(1, runs)}, launch.Ending, "SIGKILL"},
		{"no memory", running, soon, []*corev1.Pod{member(0, ends(137, "OOMKilled", soon)), member(1, runs)}, launch.Ending, "SIGKILL OutOfMemory"},
		{"no such program", claimed, soon, []*corev1.Pod{member(0, ends(128, "StartError", soon)), member(1)}, launch.Ending, "127 cannot start: the last words"},
		{"evicted", running, soon, []*corev1.Pod{member(0, fails("Evicted", "low on memory")), member(1, runs)}, launch.Ending, "lost Evicted low on memory"},
		{"drained", running, soon, []*corev1.Pod{member(0, ends(143, "Error", 2*soon), deleted(soon), disruptedBy("EvictionByEvictionAPI")), member(1, runs)}, launch.Ending, "lost Evicted drained"},
		{"refused by the kubelet", claimed, soon, []*corev1.Pod{member(0, fails("UnexpectedAdmissionError", "no units")), member(1)}, launch.Ending, "lost unstarted NodeRefused no units"},
		{"evicted, ends well", running, soon, []*corev1.Pod{member(0, runs), member(1, ends(0, "Completed", soon), fails("Evicted", "low on memory"))}, launch.Ending, "lost Evicted low on memory"},
		{"makes room for a critical pod", running, soon, []*corev1.Pod{member(0, ends(0, "Completed", soon), fails("Preempting", "to admit critical pod")), member(1, runs)}, launch.Ending, "lost Evicted admit critical pod"},
		{"the node shuts down", running, soon, []*corev1.Pod{member(0, ends(0, "Completed", soon), fails("Terminated", "imminent node shutdown")), member(1, runs)}, launch.Ending, "lost Evicted node shutdown"},
		{"ends well, fails as a pod", running, soon, []*corev1.Pod{member(0, ends(0, "Completed", soon), fails("DeadlineExceeded", "too long")), member(1, runs)}, launch.Ending, "lost PodFailed too long"},
		{"the node restarted", running, soon, []*corev1.Pod{member(0, ends(255, "Unknown", soon)), member(1, runs)}, launch.Ending, "lost AttemptLost n1"},
		{"the node forgot the container", running, soon, []*corev1.Pod{member(0, ends(137, "ContainerStatusUnknown", soon)), member(1, runs)}, launch.Ending, "lost AttemptLost n1"},
		{"the node restarted after a cancel", cancelled, soon, []*corev1.Pod{member(0, ends(137, "ContainerStatusUnknown", 2*soon), deleted(soon)), member(1, ends(143, "", 2*soon), deleted(soon))}, launch.Exited, "forced SIGKILL"},
		{"deleted by hand", running, soon, []*corev1.Pod{member(0, runs, deleted(soon)), member(1, runs)}, launch.Ending, "lost PodDeleted"},
		{"deleted by hand, ends well", running, soon, []*corev1.Pod{member(0, ends(0, "", 2*soon), deleted(soon)), member(1, runs)}, launch.Ending, "lost PodDeleted"},
		{"done, then deleted by hand", running, soon, []*corev1.Pod{member(0, ends(0, "", soon), deleted(2*soon)), member(1, runs)}, launch.Running, ""},
		{"removed by force", running, soon, []*corev1.Pod{member(0, runs)}, launch.Ending, "lost PodDeleted"},
		{"never on a node, deleted by hand", claimed, soon, []*corev1.Pod{member(0, unscheduled, deleted(soon)), member(1, runs)}, launch.Ending, "lost PodDeleted"},
		{"node lost", running, soon, []*corev1.Pod{member(0, runs, on("gone")), member(1, runs)}, launch.Ending, "lost NodeLost"},
		{"node lost, pods being deleted", ending, soon, []*corev1.Pod{member(0, runs, on("gone"), deleted(soon)), member(1, ends(143, "", soon))}, launch.Exited, "lost NodeLost"},
		{"image never pulled", claimed, soon, []*corev1.Pod{member(0, waits("ErrImageNeverPull")), member(1, runs)}, launch.Ending, "127 ImageMissing trainer:1"},
		{"image away for a while", claimed, soon, []*corev1.Pod{member(0, waits("ImagePullBackOff")), member(1, runs)}, launch.Starting, ""},
		{"image away", claimed, late, []*corev1.Pod{member(0, waits("ImagePullBackOff")), member(1, runs)}, launch.Ending, "lost ImageMissing why"},
		{"no room for a while", claimed, soon, []*corev1.Pod{member(0, unscheduled), member(1, runs)}, launch.Starting, ""},
		{"no room", claimed, 31 * soon, []*corev1.Pod{member(0, unscheduled), member(1, runs)}, launch.Ending, "lost unstarted Unschedulable Insufficient gpu"},
		{"a claim is missing", claimed, 31 * soon, []*corev1.Pod{member(0, unscheduledFor(`persistentvolumeclaim "missing" not found`)), member(1, runs)}, launch.Ending, "lost unstarted Unschedulable scheduled: persistentvolumeclaim"},
		{"not all start", claimed, late, []*corev1.Pod{member(0, waits("ContainerCreating")), member(1, runs)}, launch.Ending, "lost unstarted GangIncomplete 1 of 2"},
		{"not all are made", claimed, late, []*corev1.Pod{member(0, runs)}, launch.Ending, "lost unstarted GangIncomplete only 1 of 2"},
		{"leave as asked", asked, soon, []*corev1.Pod{member(0, ends(0, "", soon)), member(1, ends(0, "", soon))}, launch.Exited, "0"},
		{"killed as asked", cancelled, soon, []*corev1.Pod{member(0, ends(143, "", 2*soon), deleted(soon)), member(1, ends(143, "", 2*soon), deleted(soon))}, launch.Exited, "forced SIGTERM"},
		{"end well when killed", cancelled, soon, []*corev1.Pod{member(0, ends(0, "", 2*soon), deleted(soon)), member(1, ends(0, "", 2*soon), deleted(soon))}, launch.Exited, "forced"},
		{"on their way out", cancelled, soon, []*corev1.Pod{member(0, runs, deleted(soon)), member(1, runs, deleted(soon))}, launch.Running, ""},
		{"workers done, servers stay", running, soon, []*corev1.Pod{member(0, runs, role(launch.RoleServer)), member(1, ends(0, "", soon))}, launch.Ending, "0"},
		{"a server fails", running, soon, []*corev1.Pod{member(0, ends(1, "Error", soon), role(launch.RoleServer)), member(1, runs)}, launch.Ending, "1"},
	}
	limits := Options{StartLimit: time.Minute, ScheduleLimit: 30 * time.Second, NodeLostAfter: 2 * time.Minute}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := view{attempt: test.attempt, pods: test.pods, waited: test.waited, limits: limits, lost: func(node string) bool { return node == "gone" }}
			s := v.status()
			if s.Phase != test.phase {
				t.Fatalf("phase %d, want %d: %+v", s.Phase, test.phase, s.Exit)
			}
			if test.exit == "" {
				if s.Exit != (train.Exit{}) {
					t.Errorf("exit %+v, want none", s.Exit)
				}
				return
			}
			text := summary(s.Exit)
			for _, flag := range []string{"lost", "unstarted", "forced", "SIG"} {
				if strings.Contains(text, flag) != strings.Contains(test.exit, flag) {
					t.Errorf("exit %q, want %q", text, test.exit)
				}
			}
			if !containsAll(text, test.exit) {
				t.Errorf("exit %q, want %q", text, test.exit)
			}
		})
	}
}

// say summarises an exit.
func summary(e train.Exit) string {
	words := []string{}
	for word, set := range map[string]bool{"lost": e.Lost, "unstarted": e.Unstarted, "forced": e.Forced} {
		if set {
			words = append(words, word)
		}
	}
	if !e.Lost && e.Signal == "" {
		words = append(words, strconv.Itoa(e.Code))
	}
	return strings.Join(append(words, e.Signal, e.Message, e.LogTail, e.Reason.Code, e.Reason.Message), " ")
}

func containsAll(text, parts string) bool {
	for part := range strings.FieldsSeq(parts) {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}
