package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// confirmTime bounds the questions about one attempt before its end is believed.
const confirmTime = 5 * time.Second

// Status returns how far an attempt has got. The cache is believed as long as nothing ends because of it.
func (b *Backend) Status(ctx context.Context, a train.Attempt) (launch.Status, error) {
	if err := b.Ready(); err != nil {
		return launch.Status{}, err
	}
	k := b.keyOf(a)
	b.mu.Lock()
	refused, isRefused := b.refused[k]
	b.mu.Unlock()
	if isRefused && a.Ending == nil {
		a.Ending = &refused
	}
	pods := b.podsOf(k)
	if len(pods) == 0 {
		return b.statusWithoutPods(ctx, a, isRefused)
	}
	v := b.view(a, pods)
	s := v.status()
	if s.Phase == launch.Running || v.fetchingNow() {
		b.notWaiting(k)
	}
	s.Staging = v.staging()
	s.Again = b.recheckAfter(v, s.Phase)
	if s.Phase != launch.Exited && (s.Phase != launch.Ending || a.Ending != nil) {
		return s, nil
	}
	return b.confirm(ctx, a, v, isRefused)
}

// view collects what the backend knows about pods.
func (b *Backend) view(a train.Attempt, pods []*corev1.Pod) view {
	k, now := b.keyOf(a), time.Now()
	b.mu.Lock()
	since, known := b.waitingSince[k]
	if !known {
		since, b.waitingSince[k] = now, now
	}
	b.mu.Unlock()
	return view{attempt: a, pods: pods, lost: b.lost, waited: now.Sub(since), limits: b.options}
}

func (b *Backend) notWaiting(k key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waitingSince, k)
}

// confirm asks the API server for each pod, because the cache may be behind, or frozen while the server is
// unreachable.
func (b *Backend) confirm(ctx context.Context, a train.Attempt, v view, refused bool) (launch.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	var pods []*corev1.Pod
	for _, known := range v.pods {
		p, err := b.client.CoreV1().Pods(known.Namespace).Get(ctx, known.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return launch.Status{}, fmt.Errorf("confirm the end of %s: %w", a.Job, err)
		}
		pods = append(pods, p)
	}
	if len(pods) == 0 {
		return b.statusWithoutPods(ctx, a, refused)
	}
	v.pods = pods
	v.lost = func(name string) bool {
		if !b.lost(name) {
			return false
		}
		n, err := b.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && !isReady(n)
	}
	s := v.status()
	if s.Phase != launch.Exited && s.Phase != launch.Ending {
		s.Again = launch.Later // The API server does not confirm the end, or not yet, and an event may never come.
	}
	if s.ExitedAt.IsZero() {
		s.ExitedAt = time.Now().UTC()
	}
	if s.Exit.Reason.Code == "GangIncomplete" && a.Ending == nil {
		if _, last := b.queue.state(b.keyOf(a)); last != nil {
			s.Exit.Reason = creationFailure(last)
		}
		s.Exit.Reason.Message += b.warnings(ctx, pods)
	}
	return s, nil
}

// creationFailure says why not all pods of an attempt could be created.
func creationFailure(last error) train.Reason {
	if apierrors.IsForbidden(last) && !unauthorised(last) {
		return train.Reason{
			Code: launch.Forbidden, Message: "the namespace of jobs' pods does not allow them: " + firstLine(last.Error()),
			Hint: "ask for less, or ask the operator to change the quota or the limit; until then it is retried",
		}
	}
	return train.Reason{Code: "NotCreated", Message: "Kubernetes creates no pods for it: " + firstLine(last.Error())}
}

// statusWithoutPods is the status of an attempt for which the cache has no pod.
func (b *Backend) statusWithoutPods(ctx context.Context, a train.Attempt, refused bool) (launch.Status, error) {
	over := launch.Status{Phase: launch.Exited, ExitedAt: time.Now().UTC()}
	busy, last := b.queue.state(b.keyOf(a))
	if busy {
		return launch.Status{Phase: launch.Starting}, nil
	}
	switch {
	case !refused && a.Phase == train.PhaseClaimed && last != nil && b.view(a, nil).waited > b.options.StartLimit:
		over.Exit = train.Exit{Lost: true, Unstarted: true, Reason: creationFailure(last)}
		return over, nil
	case refused:
		over.Exit = *a.Ending
		return over, nil
	case a.Phase == train.PhaseClaimed:
		b.view(a, nil) // the wait for pods begins here
		return launch.Status{Phase: launch.Absent}, nil
	case a.Phase != train.PhaseRunning:
		return over, nil
	}
	// The finalizer of each pod was removed by another client, or the cache is behind.
	if left, err := b.list(ctx, b.keyOf(a)); err != nil || len(left) > 0 {
		return launch.Status{Phase: launch.Starting, Again: launch.Later}, err
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
