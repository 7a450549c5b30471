package baselines

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/policy"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// Pollux maximises the cluster's goodput by a genetic search over all placements at once (Qiao et al., OSDI'21),
// written from the paper. The fitness is the power mean (p = -1) of each job's speed-up over its fair share; a job that
// is moved counts less, by the cost of its restarts. At most one gang over several nodes may use a node. Each job tunes
// its batch by itself. Pollux knows step times only at configurations that have run, and the gradient noise as last
// measured; it does not know how much work is left.
type Pollux struct {
	plain
	trace Trace
}

// Name is pollux.
func (Pollux) Name() string { return "pollux" }

// Bounds returns the bounds that the user declared.
func (Pollux) Bounds(j *state.Job, spec train.Spec) (least, most int) {
	return policy.Declared(j, spec)
}

const (
	polluxPopulation  = 100
	polluxGenerations = 100
	// polluxFloor stands in for the speed-up of a job that has nothing, so that the power mean counts such jobs.
	polluxFloor = 1e-3
)

// Learn is Pollux's own fit.
func (Pollux) Learn(ran []train.Ran) train.Speed { return fitPollux(ran) }

// Tune chooses the batch with the most goodput for a gang as it stands. A job for which more than one device is of no
// use trains at its largest batch, as in the published evaluation.
func (Pollux) Tune(a *Agent, devices, nodes int, model string) train.Batch {
	limits := a.Limits(model)
	if a.OneDevice {
		return splitBatch(limits.MaxBatch, devices, limits)
	}
	speed, known := a.Speeds[model]
	if !known || !speed.Known() || a.Noise == nil {
		return splitBatch(max(limits.BaseBatch, limits.MinLocal*devices), devices, limits)
	}
	_, b := bestBatch(speed.AllReduce, *a.Noise, limits, nodes, devices)
	return b
}

// Decide searches from the last population on.
func (p Pollux) Decide(r *policy.Round) {
	line := bySubmission(r)
	if len(line) == 0 {
		return
	}
	s := newPolluxSearch(r, line, p.trace)
	best := s.run(s.recall(r.Memory))
	for i, g := range line {
		var to cluster.Placement
		for n, devices := range s.row(best.genes, i) {
			if devices > 0 {
				to.Parts = append(to.Parts, cluster.Part{Node: n, Count: int(devices)})
			}
		}
		if !to.Empty() {
			r.Ledger.Take(g, to)
		}
	}
}

// polluxSearch is one decision.
type polluxSearch struct {
	round *policy.Round
	dice  *rand.Rand
	jobs  []polluxJob
	nodes int
	// mixed says that there are several models of device.
	mixed bool
	room  []uint8
	base  []uint8
	// order is scratch space.
	order      []int
	population []individual
}

// polluxJob holds what the fitness needs to know about a job.
type polluxJob struct {
	gang  *cluster.Gang
	agent *Agent
	most  int
	// fair is the goodput on the fair share; 0 if nothing is known yet: then its speed-up is linear.
	fair, fairDevices float64
	model             train.AllReduce
	// moved scales the speed-up of a job that has to start again.
	moved float64
	// speedups are by devices, on one node and on several; NaN: not computed yet.
	local, cross []float64
}

// individual is a placement of all jobs: devices by job and node.
type individual struct {
	genes   []uint8
	fitness float64
}

func newPolluxSearch(r *policy.Round, line []*cluster.Gang, trace Trace) *polluxSearch {
	s := &polluxSearch{
		round: r, nodes: len(r.Nodes), dice: rand.New(rand.NewPCG(r.State.Seed, uint64(r.State.Now.UnixNano()))),
		base: make([]uint8, len(line)*len(r.Nodes)),
	}
	for i := range r.Nodes {
		s.room = append(s.room, uint8(min(r.Ledger.Free(i), math.MaxUint8)))
		s.mixed = s.mixed || r.Nodes[i].Model != r.Nodes[0].Model
	}
	share := math.Ceil(float64(r.Total) / float64(len(line)))
	for i, g := range line {
		for _, part := range g.Held.Parts {
			s.row(s.base, i)[part.Node] = uint8(part.Count)
		}
		s.jobs = append(s.jobs, newPolluxJob(r, g, share, trace[g.ID]))
	}
	return s
}

func newPolluxJob(r *policy.Round, g *cluster.Gang, share float64, told *Told) polluxJob {
	if told == nil {
		told = &Told{}
	}
	profiled, agent := 0, &told.Agent
	for _, seen := range agent.Ran {
		profiled = max(profiled, seen.Workers)
	}
	age := r.State.Now.Sub(g.SubmittedAt).Seconds()
	restart := told.RestartSeconds
	j := polluxJob{
		gang: g, agent: agent, most: min(max(2*profiled, 1), g.Most), fairDevices: share,
		moved: math.Max(age-restart*float64(g.Restarts), 0) / (age + restart),
	}
	j.local, j.cross = slices.Repeat([]float64{math.NaN()}, j.most+1), slices.Repeat([]float64{math.NaN()}, j.most+1)
	for _, model := range slices.Sorted(maps.Keys(agent.Speeds)) {
		if agent.Speeds[model].Known() && agent.Noise != nil {
			j.model = agent.Speeds[model].AllReduce
			j.fair, _ = bestBatch(j.model, *agent.Noise, agent.Limits(""), 1, int(share))
			break
		}
	}
	return j
}

func (s *polluxSearch) row(genes []uint8, job int) []uint8 {
	return genes[job*s.nodes : (job+1)*s.nodes]
}

// speedup is the goodput on a number of devices over that of the fair share.
func (j *polluxJob) speedup(nodes, devices int) float64 {
	if devices == 0 {
		return 0
	}
	table := j.local
	if nodes > 1 {
		table = j.cross
	}
	if math.IsNaN(table[devices]) {
		if j.fair <= 0 {
			table[devices] = float64(devices) / j.fairDevices
		} else {
			goodput, _ := bestBatch(j.model, *j.agent.Noise, j.agent.Limits(""), nodes, devices)
			table[devices] = goodput / j.fair
		}
	}
	return table[devices]
}

// fitness is the power mean with p = -1.
func (s *polluxSearch) fitness(genes []uint8) float64 {
	sum := 0.0
	for i := range s.jobs {
		row := s.row(genes, i)
		nodes, devices := 0, 0
		for _, n := range row {
			if n > 0 {
				nodes++
				devices += int(n)
			}
		}
		up := s.jobs[i].speedup(nodes, devices)
		if up > 0 && !slices.Equal(row, s.row(s.base, i)) {
			up *= s.jobs[i].moved
		}
		sum += 1 / math.Max(up, polluxFloor)
	}
	return float64(len(s.jobs)) / sum
}

// run breeds from the first individuals and returns the best of all generations.
func (s *polluxSearch) run(first [][]uint8) individual {
	for _, genes := range first {
		s.population = append(s.population, individual{genes, s.fitness(genes)})
	}
	s.sortPopulation()
	for range polluxGenerations {
		parents := len(s.population)
		for range polluxPopulation {
			child := s.cross(s.pick(parents), s.pick(parents))
			s.mutate(child)
			s.repair(child)
			s.population = append(s.population, individual{child, s.fitness(child)})
		}
		s.sortPopulation()
		s.population = s.population[:min(len(s.population), polluxPopulation)]
	}
	s.remember()
	return s.population[0]
}

// sortPopulation puts the fittest first and drops doubles.
func (s *polluxSearch) sortPopulation() {
	slices.SortStableFunc(s.population, func(x, y individual) int { return cmp.Compare(y.fitness, x.fitness) })
	s.population = slices.CompactFunc(s.population, func(x, y individual) bool {
		return x.fitness == y.fitness && slices.Equal(x.genes, y.genes)
	})
}

// pick is a tournament of two among the parents, which are sorted.
func (s *polluxSearch) pick(parents int) []uint8 {
	return s.population[min(s.dice.IntN(parents), s.dice.IntN(parents))].genes
}

// cross takes each row from one of two parents.
func (s *polluxSearch) cross(x, y []uint8) []uint8 {
	child := slices.Clone(x)
	for i := range s.jobs {
		if s.dice.Uint64()&1 == 0 {
			copy(s.row(child, i), s.row(y, i))
		}
	}
	return child
}

// mutate sets each place with a chance of one in the number of nodes to a random number of devices.
func (s *polluxSearch) mutate(genes []uint8) {
	rate := 2 / float64(len(genes))
	// The gaps between successes of a Bernoulli sequence are geometric: one die for each mutation instead of one for
	// each place.
	for at := s.gap(rate); at < len(genes); at += 1 + s.gap(rate) {
		genes[at] = uint8(s.dice.IntN(int(s.room[at%s.nodes]) + 1))
	}
}

func (s *polluxSearch) gap(rate float64) int {
	if rate >= 1 {
		return 0
	}
	return int(math.Log(1-s.dice.Float64()) / math.Log(1-rate))
}

// polluxMemory is the last population.
type polluxMemory struct {
	Jobs  []train.JobID `json:"jobs"`
	Nodes int           `json:"nodes"`
	Genes [][]byte      `json:"genes"`
}

func (s *polluxSearch) remember() {
	m := polluxMemory{Nodes: s.nodes}
	for _, j := range s.jobs {
		m.Jobs = append(m.Jobs, j.gang.ID)
	}
	for _, x := range s.population {
		m.Genes = append(m.Genes, x.genes)
	}
	if memory, err := json.Marshal(m); err == nil {
		s.round.Memory = string(memory)
	}
}

// recall fits the last population to the present jobs and adds what they hold.
func (s *polluxSearch) recall(memory string) [][]uint8 {
	first := [][]uint8{slices.Clone(s.base)}
	var m polluxMemory
	if memory == "" || json.Unmarshal([]byte(memory), &m) != nil || m.Nodes != s.nodes {
		return first
	}
	was := map[train.JobID]int{}
	for i, id := range m.Jobs {
		was[id] = i
	}
	for _, old := range m.Genes {
		if len(old) != len(m.Jobs)*m.Nodes {
			continue
		}
		genes := make([]uint8, len(s.base))
		for i, j := range s.jobs {
			if k, ok := was[j.gang.ID]; ok {
				copy(s.row(genes, i), old[k*m.Nodes:(k+1)*m.Nodes])
			}
		}
		s.repair(genes)
		first = append(first, genes)
	}
	return first
}
