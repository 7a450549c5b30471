package train

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestKubernetesNodeID(t *testing.T) {
	for name, want := range map[string]NodeID{
		"node1": "node1", "gpu-7": "gpu-7", "ip-10-0-0-1.eu.internal": "ip-10-0-0-1-eu-internal-8437cace",
	} {
		if got := KubernetesNodeID(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if KubernetesNodeID("a.b") == KubernetesNodeID("a-b") {
		t.Error("two nodes have one id")
	}
	if id := KubernetesNodeID(strings.Repeat("a.", 126) + "a"); len(id) > MaxIDLength {
		t.Errorf("%d characters", len(id))
	}
}

func TestPodName(t *testing.T) {
	for job, want := range map[JobID]string{"bert-91bc": "bert-91bc-2-1", "Bert_1": "bert-1-0d1c9dd4-2-1", "bert-1-0d1c9dd4": "bert-1-0d1c9dd4-b84ca55a-2-1", "bert-2026010": "bert-2026010-2-1"} {
		if got := PodName(job, 2, 1); got != want {
			t.Errorf("%s: %s, want %s", job, got, want)
		}
	}
	label := regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	ids := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_-]{0,63}`)
	rapid.Check(t, func(t *rapid.T) {
		a := JobID(ids.Draw(t, "a"))
		b := JobID(rapid.SampledFrom([]string{ids.Draw(t, "b"), PodSlug(a)}).Draw(t, "other"))
		attempt, rank := rapid.IntRange(1, 999_999).Draw(t, "attempt"), rapid.IntRange(0, 9999).Draw(t, "rank")
		name := PodName(a, attempt, rank)
		if !label.MatchString(name) || len(name) > 63 {
			t.Fatalf("%s: %q is no DNS label", a, name)
		}
		if a != b && name == PodName(b, attempt, rank) {
			t.Fatalf("%s and %s are both %s", a, b, name)
		}
	})
}

func TestPartsOfAnAttempt(t *testing.T) {
	one := Attempt{Node: "a", Devices: []DeviceID{"gpu:0"}}
	gang := Attempt{Parts: []Part{{Node: "b", Devices: []DeviceID{"gpu:1"}}, {Node: "a", Devices: []DeviceID{"gpu:0", "gpu:2"}}}}
	if one.Home() != "a" || gang.Home() != "b" {
		t.Errorf("home %s and %s", one.Home(), gang.Home())
	}
	if got := gang.DevicesOn("a"); !slices.Equal(got, []DeviceID{"gpu:0", "gpu:2"}) || !gang.IsOn("a") {
		t.Errorf("%v", got)
	}
	if gang.IsOn("c") || gang.DevicesOn("c") != nil || one.IsOn("b") {
		t.Error("on a node where it has no part")
	}
}
