package eligible

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestTheNewestOrderWins: requests in their order give the exclusions of a node, and a repeated one changes nothing.
func TestTheNewestOrderWins(t *testing.T) {
	at := time.Unix(1000, 0)
	ask := func(fact, why string, devices ...train.DeviceID) Request {
		return Request{Fact: fact, At: at, NodeRequest: event.NodeRequest{Devices: devices, By: "ops", Reason: why}}
	}
	steps := []struct {
		name string
		ask  Request
		want []string
	}{
		{"cordon", ask(event.FactCordonRequested, "kernel upgrade"), []string{"NodeCordoned node n1 is cordoned by ops: kernel upgrade"}},
		{"drain one device, too", ask(event.FactDrainRequested, "", "gpu:1"), []string{
			"NodeCordoned node n1 is cordoned by ops: kernel upgrade", "NodeDraining leave gpu:1 of node n1 is being drained by ops",
		}},
		{"drain it all", ask(event.FactDrainRequested, "fan"), []string{"NodeDraining leave node n1 is being drained by ops: fan"}},
		{"resume a device that is not cordoned by itself", ask(event.FactResumeRequested, "", "gpu:1"), []string{"NodeDraining leave node n1 is being drained by ops: fan"}},
		{"resume", ask(event.FactResumeRequested, ""), nil},
		{"cordon two devices", ask(event.FactCordonRequested, "", "gpu:1", "gpu:0"), []string{
			"NodeCordoned gpu:0 of node n1 is cordoned by ops", "NodeCordoned gpu:1 of node n1 is cordoned by ops",
		}},
		{"resume one", ask(event.FactResumeRequested, "", "gpu:0"), []string{"NodeCordoned gpu:1 of node n1 is cordoned by ops"}},
	}
	var e train.Eligibility
	n := train.Node{ID: "n1"}
	for i, step := range steps {
		step.ask.Sequence = uint64(i + 1)
		if !Follow(&e, step.ask) || Follow(&e, step.ask) {
			t.Fatalf("%s: want it followed once", step.name)
		}
		var got []string
		for _, x := range n.Exclusions(train.NodeCondition{}, e, at) {
			words := x.Reason.Code
			if x.Leave {
				words += " leave"
			}
			got = append(got, words+" "+x.Reason.Message)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s: %s", step.name, diff)
		}
	}
}

// TestAnOrderStaysShort: every plan repeats the words of an order.
func TestAnOrderStaysShort(t *testing.T) {
	var e train.Eligibility
	Follow(&e, Request{Fact: event.FactCordonRequested, Sequence: 1, NodeRequest: event.NodeRequest{Reason: strings.Repeat("ä", 5000)}})
	if got := len([]rune(e.Orders[train.WholeNode].Why)); got != 202 {
		t.Errorf("the reason has %d characters, want 200 and two dots", got)
	}
}
