package render

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

func TestACardSaysWhatIsKnown(t *testing.T) {
	begin := time.Unix(1000, 0)
	job := train.Job{Attempt: 3, SubmittedAt: begin, FinishedAt: begin.Add(90 * time.Second), RunSeconds: 60, Preemptions: 1, Retries: 1}
	for _, c := range []struct {
		name string
		card Card
		want string
	}{
		{"rejected", Card{Job: train.Job{State: train.StateRejected}}, ""},
		{"the record alone", Card{Job: job}, "waited 30s; ran 1m00s in 3 attempts: 1 preemption, 1 retry"},
		{
			"modelled, and not final",
			Card{Job: job, Account: &train.Account{Energy: 5 * unit.Joule, Methods: []string{"modelled"}}},
			"waited 30s; ran 1m00s in 3 attempts: 1 preemption, 1 retry; energy ~5.00 J so far, modelled from the use of the processor, not measured",
		},
		{
			"all of it",
			Card{
				Job: train.Job{Attempt: 1, RunSeconds: 60}, Places: []train.Part{{Node: "a", Devices: []train.DeviceID{"gpu:0", "gpu:1"}}},
				Folders: &rpc.Folders{Work: "/home/me/net", Checkpoints: "/state/jobs/a/snapshots"},
				Account: &train.Account{Energy: 5 * unit.Joule, Methods: []string{"rapl"}, Final: true, Cost: new(0.001), Currency: "EUR", CO2eGrams: new(120.0)},
				Report:  &train.AttemptReport{Checkpoint: "/home/me/net/last.pt", CheckpointEpochs: 4},
			},
			"ran 1m00s on gpu:0,gpu:1 of node a without interruption; energy 5.00 J, by rapl; cost less than 0.01 EUR, 120.00 g of CO2e; " +
				"checkpoint /home/me/net/last.pt, after epoch 4; files /home/me/net",
		},
	} {
		var got []string
		for _, line := range c.card.Lines() {
			got = append(got, fmt.Sprint(line[0], " ", line[1]))
		}
		if diff := cmp.Diff(c.want, strings.Join(got, "; ")); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}
