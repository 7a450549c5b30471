package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// TestScenarios plays the stories of testdata/scenarios. Their commands:
//
//	node id=a devices=4 [kind=gpu] [model=T4] [memory=16] [watts=250] [labels=(tier:fast)] [mixed]
//	    [machine=b]                                 a node with devices: memory in GiB each, a fifth of
//	                                                the watts when idle; mixed: T4 and A100 by turns; machine: that
//	                                                of its executor, if not its own
//	terms [quota=(ann:2)] [spent=(ann:12)] [shares=(ann:3)] [used=(ann:50,bob:50)]
//	    [watts=1000] [waited=600] [unfair=2] [energy=100] [spanning] [realms]
//	                                                quotas, kWh used of 10 by second 10,000, shares and what
//	                                                was used in device-seconds, power budget,
//	                                                bounds on waiting and unfairness, weight of energy in per
//	                                                cent, and whether gangs may span nodes, or nodes of
//	                                                one machine
//	wait seconds=600                                time goes by; what runs, runs
//	gone id=a                                       the node is not alive any more
//	job id=x [min max priority hours epochs tenant deadline=600 limit=600 labels=(tier:fast) memory=8 sharing
//	    device=gpu gpu=T4 program=p ...]            a job, submitted one second after the one before
//	runs id=x node=a devices=(cpu:0,cpu:1) [part=8] [seconds=60] [epochs=2] [silent] [stopping]
//	                                                part: of the device's memory, in GiB
//	planned id=x node=a devices=(cpu:0) [nowhere]   what the last plan gave, if it differs; nowhere: nothing
//	learn id=x seconds=10 [devices=1] [scaling=bad] [seen=5]
//	                                                the seconds of an epoch on that number of devices
//	servers id=x share=300 worker=10 ..             true milliseconds of a step with parameter servers: fixed, share,
//	    [at=(4/1,..)] [seen=5]                      worker, server; at: measured workers/servers, by default enough of
//	                                                them to know all
//	met id=x beside=(y,z) rate=60 [times=3]         what per cent of its speed alone a job like x keeps beside jobs
//	    [devices=2] [of=4]                          like these; devices: those of x, of: those of the others
//	peak id=x memory=4                              what an epoch of it needed, in GiB
//	outgrown id=x memory=12                         its attempt used more than its part, and asks for this from now on
//	slow id=x device=cpu:1 [node=a] [times=3]       a worker held up the others
//	restarted id=x times=6                          within the last hour
//	wants id=x devices=2 [batch_devices=2]          the devices on which its experiment wants it to run, and those for
//	    [resized]                                   which its batch size is meant; resized: its edited spec asks for it
//	awaits id=x ok=y                                it starts after another job has succeeded
//	done id=x epochs=5; ended id=x; cancel id=x
//	cordon node=a [devices=(gpu:0)] [drain]         an operator keeps jobs off; drain: those there are to leave
//	unstarted id=x node=a                           its start there failed
//	resume node=a                                   and lets them come again
//	decide policy                                   prints the plan
//	apply [settled]                                 the last plan now runs; settled: each job has reported and finished
//	                                                an epoch
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := &story{shares: map[string]map[string]float64{}, state: State{Now: time.Unix(1000, 0), Tuning: live()}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.play(t, d) })
	})
}

// story is the state that a scenario builds up.
type story struct {
	state State
	last  train.Plan
	// shares are the shares of tenants and what they used.
	shares map[string]map[string]float64
}

func (s *story) play(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "node":
		s.node(t, d)
	case "terms":
		s.terms(t, d)
	case "wait":
		s.wait(float64(count(t, d, "seconds", 0)))
	case "gone":
		id := text(t, d, "id", "")
		s.state.Nodes = slices.DeleteFunc(s.state.Nodes, func(n train.Node) bool { return string(n.ID) == id })
	case "job":
		s.job(t, d)
	case "runs":
		s.runs(t, d)
	case "planned":
		h := holding(t, d)
		if s.find(t, d).Planned = &h; d.HasArg("nowhere") {
			s.find(t, d).Planned = nil
		}
	case "learn":
		s.learn(t, d)
	case "servers":
		s.servers(t, d)
	case "met":
		s.met(t, d)
	case "peak":
		j := s.find(t, d)
		fit, err := curve.FitMemory([]curve.MemoryPoint{{LocalBatch: j.Spec.BatchSize, Bytes: float64(unit.Bytes(count(t, d, "memory", 0)) * unit.GiB)}})
		if err != nil {
			t.Fatal(err)
		}
		j.EpochsDone, j.Model = max(j.EpochsDone, 1), &train.Model{Memory: &fit}
	case "outgrown":
		j := s.find(t, d)
		j.Outgrown, j.Spec.EstimatedMemoryMiB = true, int64(count(t, d, "memory", 0))*1024
	case "slow":
		j := s.find(t, d)
		j.Slow = append(j.Slow, train.Straggler{
			Attempt: len(j.Slow) + 1, Rank: 1, Node: train.NodeID(text(t, d, "node", "a")), Device: train.DeviceID(text(t, d, "device", "")),
			Slowdown: float64(count(t, d, "times", 3)), FoundAt: s.state.Now,
		})
	case "wants":
		j := s.find(t, d)
		j.WantsDevices, j.BatchDevices, j.Resized = count(t, d, "devices", 0), count(t, d, "batch_devices", 0), d.HasArg("resized")
	case "cordon":
		s.cordon(t, d)
	case "unstarted":
		a := train.Attempt{Job: s.find(t, d).ID, Number: 1, Node: train.NodeID(text(t, d, "node", "a")), Phase: train.PhaseExited, ExitedAt: s.state.Now, Exit: &train.Exit{
			Lost: true, Unstarted: true, Reason: train.Reason{Code: "Unschedulable", Message: "no node has room for pod x-1-0: Insufficient cpu"},
		}}
		s.state.Exclusions = append(s.state.Exclusions, a.Unstarted(s.state.Now)...)
	case "resume":
		id := text(t, d, "node", "")
		s.state.Exclusions = slices.DeleteFunc(s.state.Exclusions, func(e train.Exclusion) bool { return string(e.Node) == id })
	case "restarted":
		s.find(t, d).RecentRestarts = count(t, d, "times", 0)
	case "done":
		s.find(t, d).EpochsDone = count(t, d, "epochs", 0)
	case "awaits":
		j := s.find(t, d)
		j.Awaits = append(j.Awaits, train.Dependency{Job: train.JobID(text(t, d, "ok", "")), On: train.AfterOK})
	case "cancel":
		s.find(t, d).CancelRequested = true
	case "hold":
		s.find(t, d).Withheld = &train.Reason{Code: "Held", Message: "held by ann", Hint: "`switchyard release` lets it start"}
	case "release":
		s.find(t, d).Withheld = nil
	case "ended":
		id := s.find(t, d).ID
		s.state.Jobs = slices.DeleteFunc(s.state.Jobs, func(j Job) bool { return j.ID == id })
	case "decide":
		p, err := Find(d.CmdArgs[0].Key)
		if err != nil {
			return err.Error() + "\n"
		}
		s.last = Decide(s.state, p)
		return words(s.last)
	case "apply":
		s.apply(d.HasArg("settled"))
	default:
		t.Fatalf("%s: no command %q", d.Pos, d.Cmd)
	}
	return ""
}

// live is how the planner of a cluster decides whose back end keeps a gang on one node.
func live() Tuning { return Tuning{OneNode: true, AtEpochs: true} }

func text(t *testing.T, d *datadriven.TestData, key, otherwise string) string {
	t.Helper()
	value := otherwise
	d.MaybeScanArgs(t, key, &value)
	return value
}

func count(t *testing.T, d *datadriven.TestData, key string, otherwise int) int {
	t.Helper()
	value := otherwise
	d.MaybeScanArgs(t, key, &value)
	return value
}

func (s *story) find(t *testing.T, d *datadriven.TestData) *Job {
	t.Helper()
	id := text(t, d, "id", "")
	for i := range s.state.Jobs {
		if string(s.state.Jobs[i].ID) == id {
			return &s.state.Jobs[i]
		}
	}
	t.Fatalf("%s: no job %q", d.Pos, id)
	return nil
}

func (s *story) node(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	kind := text(t, d, "kind", "cpu")
	n := train.Node{ID: train.NodeID(text(t, d, "id", "")), Machine: train.NodeID(text(t, d, "machine", "")), Cores: count(t, d, "cores", 0), Labels: labels(d)}
	for i := range count(t, d, "devices", 1) {
		n.Devices = append(n.Devices, train.Device{
			ID: train.DeviceID(fmt.Sprintf("%s:%d", kind, i)), Kind: train.DeviceKind(kind), Model: text(t, d, "model", ""), Memory: unit.Bytes(count(t, d, "memory", 0)) * unit.GiB,
			BusyWatts: float64(count(t, d, "watts", 0)), IdleWatts: float64(count(t, d, "watts", 0)) / 5,
		})
	}
	if d.HasArg("mixed") {
		for i := range n.Devices {
			n.Devices[i].Model, n.Devices[i].Memory = []string{"Tesla-T4", "NVIDIA-A100"}[i%2], []unit.Bytes{16 * unit.GiB, 40 * unit.GiB}[i%2]
		}
	}
	s.state.Nodes = append(s.state.Nodes, n)
}

func (s *story) terms(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	for _, a := range d.CmdArgs {
		if a.Key != "quota" && a.Key != "spent" && a.Key != "shares" && a.Key != "used" {
			continue
		}
		numbers := map[string]int{}
		for _, v := range a.Vals {
			tenant, most, _ := strings.Cut(v, ":")
			n, err := strconv.Atoi(most)
			if err != nil {
				t.Fatal(err)
			}
			numbers[tenant] = n
		}
		switch a.Key {
		case "quota":
			s.state.Quotas = numbers
			continue
		case "shares", "used":
			s.shares[a.Key] = map[string]float64{}
			for tenant, n := range numbers {
				s.shares[a.Key][tenant] = float64(n)
			}
			s.state.Balances = state.BalancesOf(s.shares["used"], s.shares["shares"])
			continue
		}
		s.state.EnergyQuotas = map[string]state.EnergyQuota{}
		for tenant, kwh := range numbers {
			s.state.EnergyQuotas[tenant] = state.EnergyQuota{Allowed: 10 * unit.KilowattHour, Used: unit.Energy(kwh) * unit.KilowattHour, Until: time.Unix(10_000, 0)}
		}
	}
	s.state.PowerBudgetWatts = float64(count(t, d, "watts", 0))
	s.state.Tuning.StarvationSeconds = float64(count(t, d, "waited", 0))
	s.state.Tuning.FairnessBound = float64(count(t, d, "unfair", 0))
	s.state.Tuning.EnergyWeight = float64(count(t, d, "energy", 0)) / 100
	s.state.Tuning.OneRealm = d.HasArg("realms")
	s.state.Tuning.OneNode = !d.HasArg("spanning") && !d.HasArg("realms")
}

// wait lets time go by for everybody.
func (s *story) wait(seconds float64) {
	s.state.Now = s.state.Now.Add(time.Duration(seconds * float64(time.Second)))
	for i := range s.state.Jobs {
		if r := s.state.Jobs[i].Running; r != nil {
			r.Seconds += seconds
			s.state.Jobs[i].RunSeconds += seconds
		}
	}
}

func (s *story) job(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	j := Job{
		ID: train.JobID(text(t, d, "id", "")), Priority: count(t, d, "priority", 50),
		SubmittedAt: s.state.Now.Add(time.Duration(len(s.state.Jobs)) * time.Second),
		Spec: train.Spec{
			MinDevices: count(t, d, "min", 1), MaxDevices: count(t, d, "max", 0), MaxEpochs: count(t, d, "epochs", 10),
			EstimatedHours: float64(count(t, d, "hours", 0)), EstimatedMemoryMiB: int64(count(t, d, "memory", 0)) * 1024,
			AllowSharing: d.HasArg("sharing"), ScriptPath: text(t, d, "program", ""), Device: train.DeviceKind(text(t, d, "device", "")), GPU: text(t, d, "gpu", ""), BatchSize: 10, TrainingSetSize: count(t, d, "samples", 8400), Tenant: text(t, d, "tenant", ""), NodeLabels: labels(d),
		},
	}
	if d.HasArg("servers") {
		j.Spec.Strategy = train.StrategyParameterServer
		j.Spec.ParameterServers = &train.ServersSpec{Max: count(t, d, "servers", 0), Cores: count(t, d, "cores", 1), Async: d.HasArg("async")}
	}
	if !d.HasArg("servers") {
		j.Spec.Cores = count(t, d, "cores", 0)
	}
	j.Spec.TimeLimit = unit.Duration(count(t, d, "limit", 0)) * unit.Duration(time.Second)
	if until := count(t, d, "deadline", 0); until > 0 {
		at := s.state.Now.Add(time.Duration(until) * time.Second)
		j.Spec.Deadline = &at
	}
	s.state.Jobs = append(s.state.Jobs, j)
}

// labels reads key:value pairs; nil without any.
func labels(d *datadriven.TestData) map[string]string {
	var found map[string]string
	for _, a := range d.CmdArgs {
		if a.Key != "labels" {
			continue
		}
		found = map[string]string{}
		for _, v := range a.Vals {
			key, value, _ := strings.Cut(v, ":")
			found[key] = value
		}
	}
	return found
}

func holding(t *testing.T, d *datadriven.TestData) Holding {
	t.Helper()
	h := Holding{Node: train.NodeID(text(t, d, "node", "a")), Memory: unit.Bytes(count(t, d, "part", 0)) * unit.GiB}
	for _, a := range d.CmdArgs {
		if a.Key == "devices" {
			for _, v := range a.Vals {
				h.Devices = append(h.Devices, train.DeviceID(v))
			}
		}
	}
	return h
}

func (s *story) runs(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	h, j := holding(t, d), s.find(t, d)
	j.Planned = &h
	j.Running = &Running{
		Holding: h, Seconds: float64(count(t, d, "seconds", 60)), Epochs: count(t, d, "epochs", 2),
		Spoke: !d.HasArg("silent"), StopPending: d.HasArg("stopping"), NextSaveSeconds: float64(count(t, d, "saves", 0)),
	}
}

// cordon keeps jobs off a node or some of its devices.
func (s *story) cordon(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	h := holding(t, d)
	orders := train.Eligibility{Orders: map[train.DeviceID]train.NodeOrder{}}
	for _, device := range append(h.Devices, train.DeviceID(train.WholeNode))[:max(len(h.Devices), 1)] {
		orders.Orders[device] = train.NodeOrder{Drain: d.HasArg("drain"), Now: d.HasArg("now"), By: "ops", Why: "kernel upgrade"}
	}
	n := train.Node{ID: h.Node}
	s.state.Exclusions = append(s.state.Exclusions, n.Exclusions(train.NodeCondition{}, orders, s.state.Now)...)
}

func (s *story) learn(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	j := s.find(t, d)
	workers, seconds := count(t, d, "devices", 1), float64(count(t, d, "seconds", 10))
	seen := train.Config{Workers: workers, Nodes: 1, LocalBatch: j.Spec.BatchSize}
	step := seconds / float64(j.Spec.StepsPerEpoch(workers))
	samples := []curve.StepSample{{Config: seen, StepSeconds: step}}
	if text(t, d, "scaling", "") == "bad" {
		for n := 2; n <= 8; n++ {
			samples = append(samples, curve.StepSample{Config: train.Config{Workers: n, Nodes: 1, LocalBatch: j.Spec.BatchSize}, StepSeconds: step * float64(n) * 1.1})
		}
	}
	speed, err := curve.FitStepTime(samples, curve.DevicePrior{})
	if err != nil {
		t.Fatal(err)
	}
	j.Model = &train.Model{Job: string(j.ID), Speed: speed, EpochsSeen: count(t, d, "seen", 5)}
}

// met teaches what jobs do to each other on every device that there is.
func (s *story) met(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	if s.state.Interference == nil {
		s.state.Interference = map[string]*curve.Interference{}
	}
	var others []curve.Kind
	for _, a := range d.CmdArgs {
		for _, id := range a.Vals {
			if i := slices.IndexFunc(s.state.Jobs, func(j Job) bool { return a.Key == "beside" && string(j.ID) == id }); i >= 0 {
				others = append(others, curve.KindOf(s.state.Jobs[i].Spec).On(count(t, d, "of", 1), count(t, d, "across", 1)))
			}
		}
	}
	key := curve.InterferenceKey(&s.state.Nodes[0].Devices[0]) // all are of one type
	if s.state.Interference[key] == nil {
		s.state.Interference[key] = curve.NewInterference("", nil)
	}
	for range count(t, d, "times", 1) {
		s.state.Interference[key].Measured(curve.KindOf(s.find(t, d).Spec).On(count(t, d, "devices", 1), count(t, d, "nodes", 1)), others, float64(count(t, d, "rate", 0))/100)
	}
}

// servers gives a job a model with the true speed of its workers and servers, fitted from the measurements.
func (s *story) servers(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	j := s.find(t, d)
	ms := func(key string) float64 { return float64(count(t, d, key, 0)) / 1000 }
	truth := train.Servers{Fixed: ms("fixed"), PerShare: ms("share"), PerWorker: ms("worker"), PerServer: ms("server")}
	at := []string{"1/1", "1/4", "4/1", "4/4", "2/1", "1/2", "4/2", "2/4"}
	for _, a := range d.CmdArgs {
		if a.Key == "at" {
			at = a.Vals
		}
	}
	kind := j.Spec.SpeedKind()
	h := curve.History{Kind: kind}
	for _, x := range at {
		c := train.Config{Nodes: 1, LocalBatch: j.Spec.BatchSize}
		if _, err := fmt.Sscanf(x, "%d/%d", &c.Workers, &c.Servers); err != nil {
			t.Fatalf("%s: %v", d.Pos, err)
		}
		h.Steps = append(h.Steps, curve.StepSample{Config: c, StepSeconds: truth.StepSeconds(c, kind == train.SpeedServersAsync)})
	}
	m := curve.Refit(h)
	m.EpochsSeen = count(t, d, "seen", 5)
	j.Model = &m
}

// apply makes the last plan run.
func (s *story) apply(settled bool) {
	s.state.Memory = s.last.Memory
	for i := range s.state.Jobs {
		j := &s.state.Jobs[i]
		a, ok := s.last.Find(j.ID)
		if !ok {
			j.Planned, j.Running = nil, nil
			continue
		}
		h := Holding{Node: a.Node, Devices: a.Devices, Memory: a.Memory, Beside: a.Beside, Parts: a.Parts, Servers: a.Servers}
		if j.Running == nil || !j.Running.Same(h) {
			j.Running = &Running{Holding: Holding{Node: a.Node, Devices: a.Devices, Memory: a.Memory, Parts: a.Parts, Servers: a.Servers}}
		}
		if settled {
			j.Running.Seconds, j.Running.Epochs, j.Running.Spoke = 60, 2, true
		}
		j.Planned = &h
	}
}

// words prints a plan for reading.
func words(p train.Plan) string {
	var w strings.Builder
	for _, a := range p.Allocations {
		for i, p := range a.Places() {
			name := string(a.Job)
			if i > 0 {
				name = "  and"
			}
			fmt.Fprintf(&w, "%s on %s: %s", name, p.Node, p)
			for _, s := range a.Servers {
				if s.Node == p.Node {
					fmt.Fprintf(&w, " + %d servers", s.Count)
				}
			}
			if i < len(a.Places())-1 {
				w.WriteString("\n")
			}
		}
		fmt.Fprintf(&w, ", %s: %s", a.Reason.Code, a.Reason.Message)
		if a.RemainingSeconds > 0 {
			fmt.Fprintf(&w, " (%.0f s left)", a.RemainingSeconds)
		}
		w.WriteString("\n")
	}
	for _, a := range p.Waiting {
		fmt.Fprintf(&w, "%s waits", a.Job)
		if a.StartInSeconds > 0 {
			fmt.Fprintf(&w, " %.0f s", a.StartInSeconds)
		}
		for _, r := range a.Blockers {
			fmt.Fprintf(&w, "\n  %s: %s", r.Code, r.Message)
			if r.Hint != "" {
				fmt.Fprintf(&w, " (%s)", r.Hint)
			}
		}
		w.WriteString("\n")
	}
	if w.Len() == 0 {
		return "nothing\n"
	}
	return w.String()
}
