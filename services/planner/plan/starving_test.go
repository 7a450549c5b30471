package plan

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

const (
	streamStep  = 60 * time.Second
	streamBound = 300 * time.Second
	// streamLongest is how long a job runs at most.
	streamLongest = 300 * time.Second
	// streamWatts is what each device draws more with a job.
	streamWatts = 100
)

// stream is a cluster to which a small job comes in each step, for ever.
type stream struct {
	t       *rapid.T
	policy  Policy
	state   State
	devices int
	// shares: the small jobs share their devices. speak: they can be asked to leave.
	shares, speak bool
	ends          map[train.JobID]time.Time
}

func newStream(t *rapid.T, policy Policy) *stream {
	tuning := live()
	tuning.StarvationSeconds = streamBound.Seconds()
	tuning.OneNode = rapid.Bool().Draw(t, "one node")
	s := &stream{t: t, policy: policy, state: State{Now: time.Unix(0, 0), Tuning: tuning}, ends: map[train.JobID]time.Time{}}
	for i := range rapid.IntRange(1, 2).Draw(t, "nodes") {
		n := train.Node{ID: train.NodeID(fmt.Sprint("n", i))}
		for d := range rapid.IntRange(1, 3).Draw(t, "devices") {
			n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprint("gpu:", d)), Kind: train.KindGPU, Memory: 16 * unit.GiB, BusyWatts: streamWatts + 1, IdleWatts: 1})
			s.devices++
		}
		s.state.Nodes = append(s.state.Nodes, n)
	}
	s.shares, s.speak = rapid.Bool().Draw(t, "share"), rapid.Bool().Draw(t, "speak")
	return s
}

func (s *stream) submit(id string, spec train.Spec) {
	spec.MaxDevices, spec.EstimatedMemoryMiB = spec.MinDevices, 4<<10
	s.state.Jobs = append(s.state.Jobs, Job{ID: train.JobID(id), Priority: 50, SubmittedAt: s.state.Now, Spec: spec})
}

// step decides, lets jobs run, and has those end whose time has come.
func (s *stream) step() {
	s.state.Now = s.state.Now.Add(streamStep)
	p := Decide(s.state, s.policy)
	var left []Job
	for _, j := range s.state.Jobs {
		a, has := p.Find(j.ID)
		if _, begun := s.ends[j.ID]; has && !begun {
			s.ends[j.ID] = s.state.Now.Add(streamStep * time.Duration(rapid.IntRange(1, int(streamLongest/streamStep)).Draw(s.t, "steps")))
		}
		if j.Planned, j.Running = nil, nil; has {
			j.Planned = holdingOf(a)
			j.Running = &Running{Holding: *j.Planned, Seconds: 60, Spoke: s.speak, Epochs: 1}
		}
		if !has || s.state.Now.Before(s.ends[j.ID]) {
			left = append(left, j)
		}
	}
	s.state.Jobs, s.state.Memory = left, p.Memory
}

// TestNobodyStarves: a stream of small jobs never leaves a device empty, but a job that wants one for itself, or
// several, gets them once the bound has passed and the jobs of then have ended, under every policy.
func TestNobodyStarves(t *testing.T) {
	for name, policy := range Policies() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				s := newStream(t, policy)
				most := s.devices
				// The others give a job devices of one node, unless it has parameter servers.
				if policy.Name() != (Switchyard{}).Name() || s.state.Tuning.OneNode {
					most = 0
					for _, n := range s.state.Nodes {
						most = max(most, len(n.Devices))
					}
				}
				begun := s.devices
				if allowed := rapid.IntRange(0, s.devices).Draw(t, "allowed"); allowed > 0 {
					begun, most = allowed, min(most, allowed)
					if rapid.Bool().Draw(t, "by power") {
						s.state.PowerBudgetWatts = float64(allowed*streamWatts + s.devices)
					} else {
						s.state.Quotas = map[string]int{"": allowed}
					}
				}
				patient := train.Spec{MinDevices: rapid.IntRange(1, most).Draw(t, "needs"), AllowSharing: rapid.Bool().Draw(t, "would share")}
				small := func(i int) {
					s.submit(fmt.Sprint("small", i), train.Spec{MinDevices: 1, AllowSharing: s.shares})
				}
				for i := range begun { // these have devices before it comes
					small(i)
					s.step()
				}
				s.submit("patient", patient)
				// While it waits for devices of one node more of another one may come free, once for each that it needs.
				latest := s.state.Now.Add(streamBound + time.Duration(patient.MinDevices+1)*streamLongest + 2*streamStep)
				for i := begun; s.ends["patient"].IsZero(); i += 2 {
					if s.state.Now.After(latest) {
						t.Fatalf("the job that needs %d devices has waited since %v, until %v\n%s\n%s", patient.MinDevices, s.state.Jobs[0].SubmittedAt, s.state.Now, jobWords(s.state), words(Decide(s.state, policy)))
					}
					small(i)
					small(i + 1)
					s.step()
				}
			})
		})
	}
}
