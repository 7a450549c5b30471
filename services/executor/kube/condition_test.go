package kube

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestConditionOf: what keeps pods of jobs off a node, in words.
func TestConditionOf(t *testing.T) {
	taint := func(key, value string, effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: key, Value: value, Effect: effect}
	}
	cases := []struct {
		name   string
		ready  corev1.ConditionStatus
		cordon bool
		taints []corev1.Taint
		want   []string
	}{
		{"ready", corev1.ConditionTrue, false, nil, nil},
		{"cordoned", corev1.ConditionTrue, true, []corev1.Taint{taint(corev1.TaintNodeUnschedulable, "", corev1.TaintEffectNoSchedule)}, []string{"node n1 is cordoned in Kubernetes"}},
		{"tolerated and merely discouraged", corev1.ConditionTrue, false, []corev1.Taint{
			taint("nvidia.com/gpu", "present", corev1.TaintEffectNoSchedule), taint("team", "b", corev1.TaintEffectPreferNoSchedule),
		}, nil},
		{"tainted", corev1.ConditionTrue, false, []corev1.Taint{
			taint("team", "b", corev1.TaintEffectNoSchedule), taint("nvidia.com/gpu", "", corev1.TaintEffectNoExecute),
		}, []string{"node n1 has taints that jobs do not tolerate: nvidia.com/gpu:NoExecute, team=b:NoSchedule"}},
		{
			"not ready", corev1.ConditionUnknown, false,
			[]corev1.Taint{taint(corev1.TaintNodeUnreachable, "", corev1.TaintEffectNoExecute)},
			[]string{"node n1 is not ready: NodeStatusUnknown: the kubelet stopped posting"},
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{Unschedulable: tc.cordon, Taints: tc.taints}}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: tc.ready, Reason: "NodeStatusUnknown", Message: "the kubelet stopped posting"}}
			var got []string
			of := train.Node{ID: "n1"}
			for _, e := range of.Exclusions(conditionOf(n, []string{"nvidia.com/gpu"}, time.Time{}), train.Eligibility{}, time.Time{}) {
				got = append(got, e.Reason.Message)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAConditionIsRecordedWhenItChanges: a kubelet's heartbeat is no change.
func TestAConditionIsRecordedWhenItChanges(t *testing.T) {
	c := newConditions()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	c.observe(n, false, nil, time.Unix(1, 0))
	if due := c.due(); len(due) != 1 {
		t.Fatalf("%v is due, want the first condition of n1", due)
	}
	c.recorded["n1"] = c.due()["n1"]
	c.observe(n, false, nil, time.Unix(2, 0))
	if due := c.due(); len(due) != 0 {
		t.Errorf("%v is due without a change", due)
	}
	n.Spec.Unschedulable = true
	c.observe(n, false, nil, time.Unix(3, 0))
	if due := c.due(); !due["n1"].Cordoned {
		t.Errorf("%v is due, want the cordon", due)
	}
	c.observe(n, true, nil, time.Unix(4, 0))
	if due := c.due(); due["n1"].NotReady == "" {
		t.Errorf("%v is due, want that n1 is gone", due)
	}
}
