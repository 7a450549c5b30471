package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// confirmTime bounds the questions about one attempt before its end is believed.
const confirmTime = 5 * time.Second

// podsOf are the pods of an attempt that the cache knows, by rank.
func (b *Backend) podsOf(k key) []*corev1.Pod {
	pods := b.indexed(byAttempt, k.base())
	slices.SortFunc(pods, func(x, y *corev1.Pod) int { return cmp.Compare(rankOf(x), rankOf(y)) })
	return pods
}

// Look says how far an attempt has come. What the cache says is enough for as long as nothing ends by it.
func (b *Backend) Look(ctx context.Context, a train.Attempt) (launch.Sight, error) {
	if err := b.Ready(); err != nil {
		return launch.Sight{}, err
	}
	k := keyOf(a)
	b.mu.Lock()
	refused, isRefused := b.refused[k]
	b.mu.Unlock()
	if isRefused && a.Ending == nil {
		a.Ending = &refused
	}
	pods := b.podsOf(k)
	if len(pods) == 0 {
		return b.lookForNone(ctx, a, isRefused)
	}
	v := b.view(a, pods)
	s := v.sight()
	if s.Phase == launch.Running {
		b.notWaiting(k)
	}
	s.Again = b.again(v, s.Phase)
	if s.Phase != launch.Exited && (s.Phase != launch.Ending || a.Ending != nil) {
		return s, nil
	}
	return b.confirm(ctx, a, v, isRefused)
}

// again is after how long the same pods may be seen otherwise: when a limit of those that do not run yet, or the patience with a silent node, runs out.
func (b *Backend) again(v view, phase launch.Phase) time.Duration {
	var waits []time.Duration
	for _, p := range v.pods {
		if left, silent := b.patience(p.Spec.NodeName); silent {
			waits = append(waits, left)
		}
	}
	if phase == launch.Starting || phase == launch.Absent {
		waits = append(waits, v.limits.ScheduleLimit-v.waited, v.limits.StartLimit-v.waited, imagePatience-v.waited)
	}
	waits = slices.DeleteFunc(waits, func(d time.Duration) bool { return d < 0 })
	if len(waits) == 0 {
		return 0
	}
	return max(slices.Min(waits), launch.Soon)
}

// view puts together what is known of pods.
func (b *Backend) view(a train.Attempt, pods []*corev1.Pod) view {
	k, now := keyOf(a), time.Now()
	b.mu.Lock()
	since, known := b.since[k]
	if !known {
		since, b.since[k] = now, now
	}
	b.mu.Unlock()
	return view{attempt: a, pods: pods, lost: b.lost, waited: now.Sub(since), limits: b.options}
}

func (b *Backend) notWaiting(k key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.since, k)
}

// confirm asks the API server for each pod, since the cache may be behind, or frozen while the server is away.
func (b *Backend) confirm(ctx context.Context, a train.Attempt, v view, refused bool) (launch.Sight, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	var pods []*corev1.Pod
	for _, known := range v.pods {
		p, err := b.client.CoreV1().Pods(b.options.Namespace).Get(ctx, known.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return launch.Sight{}, fmt.Errorf("confirm the end of %s: %w", a.Job, err)
		}
		pods = append(pods, p)
	}
	if len(pods) == 0 {
		return b.lookForNone(ctx, a, refused)
	}
	v.pods = pods
	v.lost = func(name string) bool {
		if !b.lost(name) {
			return false
		}
		n, err := b.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && !isReady(n)
	}
	s := v.sight()
	if s.Phase != launch.Exited && s.Phase != launch.Ending {
		s.Again = launch.Later // the API server does not confirm it, or not yet: no news need come of that
	}
	if s.ExitedAt.IsZero() {
		s.ExitedAt = time.Now().UTC()
	}
	if s.Exit.Reason.Code == "GangIncomplete" && a.Ending == nil {
		if _, last := b.desk.state(keyOf(a)); last != nil {
			s.Exit.Reason = notMade(last)
		}
		s.Exit.Reason.Message += b.warnings(ctx, pods)
	}
	return s, nil
}

// notMade is why not all pods of an attempt could be made.
func notMade(last error) train.Reason {
	if apierrors.IsForbidden(last) && !unauthorised(last) {
		return train.Reason{
			Code: launch.Forbidden, Message: "the namespace of jobs' pods does not allow them: " + firstLine(last.Error()),
			Hint: "ask for less, or have the operator change the quota or the limit; it is tried again until then",
		}
	}
	return train.Reason{Code: "NotCreated", Message: "Kubernetes takes no pods of it: " + firstLine(last.Error())}
}

// warnings are what Kubernetes has last said of pods that do not start, e.g. that a folder cannot be mounted.
func (b *Backend) warnings(ctx context.Context, pods []*corev1.Pod) string {
	for _, p := range pods {
		if p.Status.Phase != corev1.PodPending {
			continue
		}
		events, err := b.client.CoreV1().Events(b.options.Namespace).List(ctx, metav1.ListOptions{
			FieldSelector: fields.Set{"involvedObject.uid": string(p.UID), "type": corev1.EventTypeWarning}.String(),
		})
		if err != nil || len(events.Items) == 0 {
			continue
		}
		last := slices.MaxFunc(events.Items, func(x, y corev1.Event) int { return x.LastTimestamp.Compare(y.LastTimestamp.Time) })
		return "; " + words(last.Reason, last.Message)
	}
	return ""
}

// lookForNone is the sight of an attempt of which the cache knows no pod.
func (b *Backend) lookForNone(ctx context.Context, a train.Attempt, refused bool) (launch.Sight, error) {
	over := launch.Sight{Phase: launch.Exited, ExitedAt: time.Now().UTC()}
	busy, last := b.desk.state(keyOf(a))
	if busy {
		return launch.Sight{Phase: launch.Starting}, nil
	}
	switch {
	case !refused && a.Phase == train.PhaseClaimed && last != nil && b.view(a, nil).waited > b.options.StartLimit:
		over.Exit = train.Exit{Lost: true, Unstarted: true, Reason: notMade(last)}
		return over, nil
	case refused:
		over.Exit = *a.Ending
		return over, nil
	case a.Phase == train.PhaseClaimed:
		b.view(a, nil) // from now on it is waited for
		return launch.Sight{Phase: launch.Absent}, nil
	case a.Phase != train.PhaseRunning:
		return over, nil
	}
	// The finalizer of each was removed by somebody else, or the cache is behind.
	if left, err := b.list(ctx, keyOf(a)); err != nil || len(left) > 0 {
		return launch.Sight{Phase: launch.Starting, Again: launch.Later}, err
	}
	switch {
	case a.Ending != nil:
		over.Exit = *a.Ending
	case a.Stop != train.StopNone:
		over.Exit = train.Exit{Forced: true, Signal: "SIGTERM"}
	default:
		over.Exit = view{}.missing()
	}
	return over, nil
}

// list asks the API server for the pods of an attempt.
func (b *Backend) list(ctx context.Context, k key) ([]*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	found, err := b.client.CoreV1().Pods(b.options.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: fmt.Sprintf("%s,%s=%s,%s=%d", selector, labelJob, k.slug(), labelAttempt, k.number),
	})
	if err != nil {
		return nil, fmt.Errorf("list the pods of %s: %w", k.job, err)
	}
	pods := make([]*corev1.Pod, len(found.Items))
	for i := range found.Items {
		pods[i] = &found.Items[i]
	}
	return pods, nil
}
