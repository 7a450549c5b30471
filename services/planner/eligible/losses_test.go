package eligible

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// cluster plays the planner's record of every node. Times are in seconds after midnight.
type cluster struct {
	known map[train.NodeID]train.Eligibility
	count int
	gpus  int
}

func second(n int) time.Time { return time.Unix(int64(n), 0).UTC() }

// lose enters a loss such as "a2 n1/gpu:0 10-20": attempt 2 of job a ran on gpu:0 of n1 from second 10 to 20. It
// returns what it sets aside.
func (c *cluster) lose(t *testing.T, line string) []string {
	t.Helper()
	var job, where string
	var attempt, from, to int
	if _, err := fmt.Sscanf(line, "%1s%d %s %d-%d", &job, &attempt, &where, &from, &to); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	loss := train.NodeLoss{Job: train.JobID(job), Attempt: attempt, ClaimedAt: second(from), At: second(to), How: "killed by SIGKILL"}
	var nodes []train.Node
	for part := range strings.SplitSeq(where, "+") {
		id, device, _ := strings.Cut(part, "/")
		n := train.Node{ID: train.NodeID(id)}
		for i := range c.gpus {
			n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprintf("gpu:%d", i))})
		}
		e := c.known[n.ID]
		loss.Devices = []train.DeviceID{train.DeviceID(device)}
		if first, second := Lose(&e, loss), Lose(&e, loss); !first || second {
			t.Fatalf("%q: want it entered once", line)
		}
		c.known[n.ID], nodes = e, append(nodes, n)
	}
	var aside []string
	for _, n := range nodes {
		v, is := Judge(c.known, n, c.count, loss)
		if !is {
			continue
		}
		e := c.known[n.ID]
		Follow(&e, Request{NodeRequest: event.NodeRequest{Devices: v.Devices}, Fact: event.FactSetAside, Sequence: e.Sequence + 1, At: loss.At, Until: v.Until, Why: v.Why()})
		c.known[n.ID] = e
		aside = append(aside, strings.Join(strings.Fields(fmt.Sprintf("%s %s until %d", n.ID, train.JoinDevices(v.Devices), v.Until.Unix())), " "))
	}
	return aside
}

// TestDifferentJobsLostAgainAndAgain: only the last line of a case may set something aside, and want says what.
func TestDifferentJobsLostAgainAndAgain(t *testing.T) {
	for name, test := range map[string]struct {
		nodes, gpus int
		lost        []string
		want        string
	}{
		"three jobs in turn":                     {4, 4, []string{"a1 n1/gpu:0 0-10", "b1 n1/gpu:1 10-20", "c1 n1/gpu:2 25-30"}, "n1 until 1830"},
		"one GPU of four":                        {4, 4, []string{"a1 n1/gpu:0 0-10", "b1 n1/gpu:0 10-20", "c1 n1/gpu:0 25-30"}, "n1 gpu:0 until 1830"},
		"one GPU of the only node":               {1, 2, []string{"a1 n1/gpu:0 0-10", "b1 n1/gpu:0 10-20", "c1 n1/gpu:0 25-30"}, "n1 gpu:0 until 1830"},
		"the only node":                          {1, 4, []string{"a1 n1/gpu:0 0-10", "b1 n1/gpu:1 10-20", "c1 n1/gpu:2 25-30"}, ""},
		"CPU slots are no hardware":              {2, 0, []string{"a1 n1/cpu:0 0-10", "b1 n1/cpu:0 10-20", "c1 n1/cpu:0 25-30"}, "n1 until 1830"},
		"one job again and again":                {4, 4, []string{"a1 n1/gpu:0 0-10", "a2 n1/gpu:0 10-20", "b1 n1/gpu:0 20-30", "a3 n1/gpu:0 30-40"}, ""},
		"one crash under three jobs":             {4, 4, []string{"a1 n1/gpu:0 0-10", "b1 n1/gpu:1 5-11", "c1 n1/gpu:2 7-12"}, ""},
		"side by side, and lost far apart":       {4, 4, []string{"a1 n1/gpu:0 0-10", "b1 n1/gpu:1 0-700", "c1 n1/gpu:2 0-1400"}, "n1 until 3200"},
		"longer than an hour ago":                {4, 4, []string{"a1 n1/gpu:0 0-10", "b1 n1/gpu:1 10-20", "c1 n1/gpu:2 3600-3700"}, ""},
		"a job that is lost everywhere":          {4, 4, []string{"a1 n2/gpu:0 0-5", "a2 n1/gpu:0 6-10", "b1 n1/gpu:0 10-20", "c1 n1/gpu:0 25-30"}, ""},
		"three jobs that follow each other":      {2, 2, []string{"a1 n2/gpu:0 0-5", "b1 n2/gpu:1 6-7", "a2 n1/gpu:0 8-9", "b2 n1/gpu:1 9-10", "c1 n1/gpu:0 10-20"}, ""},
		"gangs with one node in common":          {4, 4, []string{"a1 n1/gpu:0+n2/gpu:0 0-10", "b1 n1/gpu:1+n3/gpu:0 10-20", "c1 n1/gpu:2+n4/gpu:0 25-30"}, "n1 until 1830"},
		"more than half of the nodes stay":       {3, 0, []string{"a1 n1/cpu:0 0-1", "b1 n1/cpu:0 2-3", "c1 n1/cpu:0 4-5", "d1 n2/cpu:0 6-7", "e1 n2/cpu:0 8-9", "f1 n2/cpu:0 10-11"}, ""},
		"a broken GPU says nothing of its node":  {4, 4, []string{"a1 n1/gpu:0 0-1", "b1 n1/gpu:0 2-3", "c1 n1/gpu:0 4-5", "d1 n1/gpu:1 6-7"}, ""},
		"two of four GPUs, and then the node":    {4, 4, []string{"a1 n1/gpu:0 0-1", "b1 n1/gpu:0 2-3", "c1 n1/gpu:0 4-5", "d1 n1/gpu:1 6-7", "e1 n1/gpu:1 8-9", "f1 n1/gpu:1 10-11", "g1 n1/gpu:2 12-13", "h1 n1/gpu:2 14-15", "i1 n1/gpu:2 16-17"}, "n1 until 1817"},
		"a loss after the rest":                  {4, 4, []string{"a1 n1/gpu:0 0-10", "b1 n1/gpu:0 10-20", "c1 n1/gpu:0 25-30", "d1 n1/gpu:0 1900-2000"}, "n1 gpu:0 until 3800"},
		"an end before the others is told late":  {4, 4, []string{"b1 n1/gpu:0 10-20", "c1 n1/gpu:0 25-30", "a1 n1/gpu:0 0-10"}, ""},
		"the same job is lost on the device set": {4, 4, []string{"a1 n1/gpu:0 0-10", "b1 n1/gpu:0 10-20", "c1 n1/gpu:0 25-30", "c2 n1/gpu:0 31-32"}, "n1 gpu:0 until 1832"},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster{known: map[train.NodeID]train.Eligibility{}, count: test.nodes, gpus: test.gpus}
			var got []string
			for _, line := range test.lost {
				got = c.lose(t, line)
			}
			if strings.Join(got, "; ") != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestWhatIsSetAsideEnds: by time, and by an operator, whose word also forgives the losses before it.
func TestWhatIsSetAsideEnds(t *testing.T) {
	c := cluster{known: map[train.NodeID]train.Eligibility{}, count: 4, gpus: 4}
	for _, line := range []string{"a1 n1/gpu:0 0-10", "b1 n1/gpu:0 10-20", "c1 n1/gpu:0 25-30"} {
		c.lose(t, line)
	}
	n, e := train.Node{ID: "n1"}, c.known["n1"]
	all := n.Exclusions(train.NodeCondition{}, e, second(1829))
	want := "NodeSetAside gpu:0 of node n1 is set aside until 00:30:30 UTC: 3 jobs were lost on it within an hour: a (killed by SIGKILL), b (killed by SIGKILL), c (killed by SIGKILL)"
	if len(all) != 1 || all[0].Reason.Code+" "+all[0].Reason.Message != want || !all[0].Until.Equal(second(1830)) || !all[0].Covers("gpu:0") || all[0].Covers("gpu:1") {
		t.Errorf("got %+v, want %s", all, want)
	}
	if all := n.Exclusions(train.NodeCondition{}, e, second(1830)); len(all) > 0 {
		t.Errorf("after its time: %+v", all)
	}
	cordon := Request{Fact: event.FactCordonRequested, Sequence: e.Sequence + 1, At: second(40)}
	if Follow(&e, cordon); len(n.Exclusions(train.NodeCondition{}, e, second(50))) != 2 {
		t.Errorf("a cordon keeps what is set aside: %+v", e)
	}
	resume := Request{Fact: event.FactResumeRequested, Sequence: e.Sequence + 1, At: second(60), NodeRequest: event.NodeRequest{Devices: []train.DeviceID{"gpu:0"}}}
	if Follow(&e, resume); len(e.Aside) > 0 || len(e.Orders) != 1 {
		t.Errorf("resumed: %+v", e)
	}
	if Lose(&e, train.NodeLoss{Job: "d", Attempt: 1, At: second(50)}) || !Lose(&e, train.NodeLoss{Job: "d", Attempt: 1, At: second(70)}) {
		t.Error("want only losses after the resume to count")
	}
}
