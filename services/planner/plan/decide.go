// Package plan decides which job holds which devices. Decide is pure: the same state and policy give the same plan. The plan is what is
// desired; carrying it out, and waiting for a job to leave before the next one starts on its devices, is the executor's business.
//
// For every policy: a device is given once, or to jobs of one tenant that share its memory; no tenant holds more than its quota and no plan is predicted to draw more than the power budget. For those of
// the live planner: a job gets between min_devices and max_devices, or as many as its experiment chooses, or nothing; jobs with a strictly higher priority go first and may take devices
// from lower ones, which leave at their next checkpoint; an attempt that never spoke to the job API is neither moved nor resized, since it could
// only be killed; a job whose size does not change keeps its devices, one that shrinks keeps some of them, one that grows all.
package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Policy decides how many devices each job gets, and where.
type Policy interface {
	Name() string
	decide(s State) train.Plan
}

// sharer is a policy whose jobs each run on one node.
type sharer interface {
	Name() string
	// share fills in node and size of each candidate.
	share(b *board)
}

// DefaultPolicy is the name of the policy that is used unless another is asked for.
const DefaultPolicy = "switchyard"

// Policies are the policies of the live planner by name. Published lists those of simulations.
func Policies() map[string]Policy {
	all := map[string]Policy{}
	for _, p := range []Policy{FIFO{}, SRTF{}, Optimus{}, Switchyard{}} {
		all[p.Name()] = p
	}
	return all
}

// PolicyNames are the names of all policies, in alphabetical order.
func PolicyNames() []string { return slices.Sorted(maps.Keys(Policies())) }

// Published are the policies of simulations by name, in the form in which they were published or, where that is on one node, on gangs.
func Published() map[string]Policy {
	all := map[string]Policy{}
	for _, p := range []Policy{GangFIFO{}, GangSRTF{}, DRF{}, Tetris{}, Tiresias{}, OptimusOracle{}, Pollux{}, MaxThroughput{}, Switchyard{}, SwitchyardOracle{}} {
		all[p.Name()] = p
	}
	return all
}

// PublishedNames are the names of all policies of simulations, in alphabetical order.
func PublishedNames() []string { return slices.Sorted(maps.Keys(Published())) }

// FindPublished gives the policy of a name for simulations; the error lists the names.
func FindPublished(name string) (Policy, error) {
	if name == "gavel" {
		name = MaxThroughput{}.Name()
	}
	if p, ok := Published()[name]; ok {
		return p, nil
	}
	return nil, fmt.Errorf("policy %q: want one of %v", name, PublishedNames())
}

// Find gives the policy of a name; the error lists the names.
func Find(name string) (Policy, error) {
	if p, ok := Policies()[name]; ok {
		return p, nil
	}
	return nil, fmt.Errorf("policy %q: want one of %v", name, PolicyNames())
}

// maxRounds bounds the search for a plan that would not be changed again at once. Each round that changes something leaves fewer jobs that may
// be changed, so few are needed.
const maxRounds = 8

// Decide makes the plan; its generation and time are left to the caller. It is one function for the live planner and for simulations. Policies hand out whole
// devices; which jobs have one together, how many a job has whose experiment chooses that, and what is kept for jobs that starve is settled around them. Jobs
// that are put off for better energy take no part, and come last of those that wait.
func Decide(s State, p Policy) train.Plan {
	s, put := s.postpone()
	made := decideSizes(s, p)
	made.Waiting = append(made.Waiting, put...)
	return made
}

func handOut(s State, p Policy) train.Plan {
	if slices.ContainsFunc(s.Jobs, mayShare) {
		return decideShared(s, p)
	}
	return decideKeeping(s, p)
}

// settle asks the policy again with its own answer applied until it leaves it as it is, so that deciding again without news changes nothing.
func settle(s State, p sharer) train.Plan {
	b := newBoard(s, false)
	for range maxRounds {
		b.clear()
		p.share(b)
		if b.stable() {
			break
		}
		b.apply()
	}
	b.assign()
	return explain(b, p)
}

// Tuner is a policy that also chooses the batch of a running gang between decisions, after each epoch, as the job's own agent would.
type Tuner interface {
	Tune(j Job, devices, nodes int, model string) train.Batch
}

// Learner is a policy with a fit of step times of its own; the seen are all on one model of device.
type Learner interface {
	Learn(seen []Seen) train.Speed
}
