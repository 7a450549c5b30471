package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// condition tells why something is not so yet; nil when it is.
type condition func(ctx context.Context) error

// await waits for a condition while every program that was started lives, and says what it waits for and how long that
// took.
func (c *Cluster) await(ctx context.Context, progress io.Writer, what string, patience time.Duration, holds condition) error {
	fmt.Fprintf(progress, "waiting for %s ... ", what)
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// A thousand nodes are not to be listed ten times a second.
	ticker := time.NewTicker(100*time.Millisecond + time.Duration(c.FakeNodes)*time.Millisecond)
	defer ticker.Stop()
	for {
		reason := holds(ctx)
		if reason == nil {
			fmt.Fprintf(progress, "%.1f s\n", time.Since(began).Seconds())
			return nil
		}
		if dead := c.dead(); len(dead) > 0 {
			fmt.Fprintln(progress, "no")
			return fmt.Errorf("%s ended; the last lines of its log: %s", dead[0], tail(c.LogFile(dead[0])))
		}
		select {
		case <-ctx.Done():
			fmt.Fprintln(progress, "no")
			return fmt.Errorf("wait for %s: %w: %w", what, context.Cause(ctx), reason)
		case <-ticker.C:
		}
	}
}

func apiServerReady(client kubernetes.Interface) condition {
	return func(ctx context.Context) error {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	}
}

// defaultAccountExists: no pod is admitted before the controllers have made its namespace's account.
func defaultAccountExists(client kubernetes.Interface) condition {
	return func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	}
}

// nodesReady waits for at least the wanted number of nodes that take pods.
func nodesReady(client kubernetes.Interface, wanted int) condition {
	return func(ctx context.Context) error {
		// Version 0 is answered from the API server's cache.
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		ready := 0
		for i := range nodes.Items {
			if takesPods(&nodes.Items[i]) {
				ready++
			}
		}
		if ready < wanted {
			return fmt.Errorf("%d of %d nodes are ready", ready, wanted)
		}
		return nil
	}
}

func takesPods(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady {
			return false
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (c *Cluster) containerdReady(ctx context.Context) error {
	output, err := exec.CommandContext(ctx, "ctr", "--address", c.ContainerdSocket(), "version").CombinedOutput()
	if err != nil {
		return errors.Join(err, errors.New(strings.TrimSpace(string(output))))
	}
	return nil
}
