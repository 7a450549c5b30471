package policy

import (
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/place"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// Optimus gives tasks by marginal gain (Peng et al., EuroSys'18, section 4.1): each job gets its least in order, then
// the next task, a worker with its device or a parameter server with its cores, goes to the job whose remaining time it
// shortens most for its dominant share of the cluster, as long as it shortens any. Gains of jobs with few observed
// epochs are scaled down. Unlike the paper's, sizes are not changed every slot: a change must pay for the restarts that
// it causes (see pays), and none comes oftener than Tuning.MaxRestartsPerHour. Jobs of which little is known are put on
// configurations that teach most while devices are free (see explore).
type Optimus struct{}

// Name is optimus.
func (Optimus) Name() string { return "optimus" }

// Bounds returns the bounds that the user declared.
func (Optimus) Bounds(j *state.Job, spec train.Spec) (least, most int) { return Declared(j, spec) }

// Decide gives by gain, then explores.
func (Optimus) Decide(r *Round) {
	o := newGains(r)
	o.allocate()
	o.explore()
	for _, g := range r.Candidates {
		g.Notes.MayGrow = true
		g.Notes.ByGain = g.Former.Empty() && (g.Got.Size() > g.Least || g.Got.Servers() > g.ServersLeast())
	}
}

// gains is a decision by marginal gain.
type gains struct {
	*Round
	// frozen gangs keep what they hold, by rank.
	frozen []bool
	// worker, core and byte are the shares of the cluster that one of each is.
	worker, core, byte float64
}

func newGains(r *Round) *gains {
	o := &gains{Round: r, frozen: make([]bool, len(r.Snapshot.Gangs))}
	cores, ram, slots := 0.0, 0.0, true
	for i := range r.Nodes {
		n := &r.Nodes[i]
		cores, ram, slots = cores+float64(n.Cores), ram+float64(n.RAM), slots && n.Slots
	}
	o.worker, o.core, o.byte = 1/math.Max(float64(r.Total), 1), 1/math.Max(cores, 1), 1/math.Max(ram, 1)
	if slots {
		o.worker = math.Max(o.worker, o.core)
	}
	return o
}

// task is the unit by which a gang grows: a worker or a parameter server.
type task struct{ workers, servers int }

// share is the dominant share of a task.
func (o *gains) share(g *cluster.Gang, t task) float64 {
	if t.workers > 0 {
		return o.worker
	}
	return math.Max(float64(g.Servers.Cores)*o.core, math.Max(float64(g.Servers.MemoryMiB<<20)*o.byte, 1e-9))
}

// seconds is the predicted time to the end of a gang of a size.
func (o *gains) seconds(g *cluster.Gang, workers, servers int) float64 {
	return g.RemainingWith(workers, servers, o.NodesFor(workers))
}

func (o *gains) secondsAt(g *cluster.Gang, p cluster.Placement) float64 {
	return o.seconds(g, p.Size(), p.Servers())
}

// allocate takes the sizes of most gain if they are worth more than leaving those alone that hold something.
func (o *gains) allocate() {
	for i := range o.frozen {
		o.frozen[i] = true
	}
	o.solve()
	still := o.outcome()
	any := false
	for _, g := range o.Candidates {
		o.frozen[g.Rank] = !g.MayMove || g.Held.Empty() || g.Changeable()*o.secondsAt(g, g.Held) <= o.RestartSeconds(g)
		any = any || !o.frozen[g.Rank]
	}
	if !any {
		return
	}
	for again := true; again; again = o.freeze() {
		o.clear()
		o.solve()
	}
	if moved := o.outcome(); !o.pays(still, moved) {
		o.restore(still)
	}
}

// clear takes back what was given.
func (o *gains) clear() {
	for _, g := range o.Candidates {
		o.Ledger.Return(g)
	}
}

// solve gives each gang its least in order, and the rest by gain. Frozen gangs that hold something keep it.
func (o *gains) solve() {
	least := func(g *cluster.Gang) cluster.Placement {
		if o.frozen[g.Rank] {
			return g.Held
		}
		return g.Held.Lesser(g.Least, g.ServersLeast())
	}
	for _, g := range o.Candidates {
		o.Ledger.Claim(g, least(g))
	}
	for _, tier := range o.Tiers() {
		var waiting []*cluster.Gang
		for _, g := range tier {
			o.Ledger.Claim(g, cluster.Placement{})
			if want := least(g); want.Empty() || !o.Ledger.Take(g, want) {
				waiting = append(waiting, g)
			}
		}
		for _, g := range waiting {
			if p, found := o.Finder.Find(g, g.Least, g.ServersLeast()); found {
				o.Ledger.Take(g, p)
			}
		}
	}
	o.grow()
	o.settle()
}

// offer is a task for a gang, and what it gains for its dominant share.
type offer struct {
	gang *cluster.Gang
	task task
	gain float64
}

// grow hands out what is left, one task at a time, to where it gains most.
func (o *gains) grow() {
	queue := cluster.Heap[offer]{Less: func(x, y offer) bool {
		if x.gain != y.gain {
			return x.gain > y.gain
		}
		return x.gang.Rank < y.gang.Rank
	}}
	push := func(g *cluster.Gang) {
		if best := o.best(g); best.gain > 0 {
			queue.Push(best)
		}
	}
	for _, g := range o.Candidates {
		kept := o.frozen[g.Rank] && !g.Held.Empty() && g.Got.SameShape(g.Held)
		if !g.Got.Empty() && !kept {
			push(g)
		}
	}
	for queue.Len() > 0 {
		next := queue.Pop()
		if p, found := o.larger(next.gang, next.task); !found || o.Ledger.Take(next.gang, p) {
			push(next.gang) // what does not fit any more may be replaced by the other kind of task
		}
	}
}

// best is the task that gains a gang most for its dominant share, among those for which there is room.
func (o *gains) best(g *cluster.Gang) offer {
	best := offer{gang: g}
	workers, servers := g.Got.Size(), g.Got.Servers()
	now := o.seconds(g, workers, servers)
	for _, t := range [2]task{{1, 0}, {0, 1}} {
		if workers+t.workers > g.Most || t.servers > 0 && servers >= g.ServersMost() {
			continue
		}
		gain := (now - o.seconds(g, workers+t.workers, servers+t.servers)) / o.share(g, t)
		if g.Model == nil || g.Model.EpochsSeen < o.Tuning.YoungEpochs {
			gain *= o.Tuning.YoungFactor
		}
		if gain <= best.gain {
			continue
		}
		if _, found := o.larger(g, t); found {
			best.task, best.gain = t, gain
		}
	}
	return best
}

// larger is what a gang was given with one more task: on one of its nodes, or if gangs may span nodes, on another one
// alike.
func (o *gains) larger(g *cluster.Gang, t task) (cluster.Placement, bool) {
	fits := func(node int) bool {
		return (t.workers == 0 || o.Ledger.Most(g, node) >= t.workers) && o.Ledger.HasRoom(g, node, t.workers, t.servers)
	}
	p := cluster.Placement{Parts: slices.Clone(g.Got.Parts), Memory: g.Got.Memory}
	for i := range p.Parts {
		p.Parts[i].Devices = nil
	}
	for i := range p.Parts {
		if part := &p.Parts[i]; fits(part.Node) {
			part.Count, part.Servers = part.Count+t.workers, part.Servers+t.servers
			return p, true
		}
	}
	if !o.Spans || t.workers == 0 {
		return cluster.Placement{}, false
	}
	first := &o.Nodes[p.Parts[0].Node]
	best, found := o.Finder.Next(g, first.Model, first.Island, fits)
	if !found || cluster.CutOff(p, best, o.BadLinks()) {
		return cluster.Placement{}, false
	}
	p.Parts = append(p.Parts, cluster.Part{Node: best, Count: t.workers, Servers: t.servers})
	return p, true
}

// settle puts gangs back to where they are if they have come to the same size, and spreads others with servers evenly.
func (o *gains) settle() {
	for _, g := range o.Candidates {
		if g.Got.Empty() {
			continue
		}
		workers, servers := g.Got.Size(), g.Got.Servers()
		if !g.Held.Empty() && workers == g.Held.Size() && servers == g.Held.Servers() {
			o.Ledger.Take(g, g.Held)
			continue
		}
		if len(g.Got.Parts) > 1 && servers > 0 {
			mark := o.Ledger.Mark()
			o.Ledger.Return(g)
			if p, found := o.Finder.Find(g, workers, servers); !found || p.Servers() < servers || !o.Ledger.Take(g, p) {
				o.Ledger.Undo(mark)
			}
		}
	}
}

// freeze marks the gangs whose growth is worth less than their restart, and reports whether it marked any.
func (o *gains) freeze() bool {
	found := false
	for _, g := range o.Candidates {
		if o.frozen[g.Rank] || g.Held.Empty() || g.Got.Empty() || g.Got.SameShape(g.Held) || g.Got.Size() < g.Held.Size() {
			continue
		}
		before := o.secondsAt(g, g.Held)
		if saved := g.Changeable() * (before - o.secondsAt(g, g.Got)); saved <= place.Price(o.Snapshot, g, before) {
			o.frozen[g.Rank], found = true, true
		}
	}
	return found
}

// outcome returns the placement that each candidate got.
func (o *gains) outcome() []cluster.Placement {
	got := make([]cluster.Placement, len(o.Candidates))
	for i, g := range o.Candidates {
		got[i] = g.Got
	}
	return got
}

func (o *gains) restore(outcome []cluster.Placement) {
	o.clear()
	for i, g := range o.Candidates {
		if !outcome[i].Empty() {
			o.Ledger.Take(g, outcome[i])
		}
	}
}

// pays says whether the second outcome is worth more: it serves more jobs of the highest priority in which the two
// differ, or it shortens the sum of all remaining times, the restarts included, by more than the hysteresis asks of the
// jobs that it restarts.
func (o *gains) pays(still, moved []cluster.Placement) bool {
	served, saved, asked := 0, 0.0, 0.0
	for i, g := range o.Candidates {
		if served != 0 && g.Level < o.Candidates[i-1].Level {
			break
		}
		switch {
		case still[i].Empty() && !moved[i].Empty():
			served++
		case moved[i].Empty() && !still[i].Empty():
			served--
		case !moved[i].Empty():
			share, before := 1.0, o.secondsAt(g, still[i])
			if !g.Held.Empty() {
				share = g.Changeable()
			}
			saved += share * (before - o.secondsAt(g, moved[i]))
			if restarts(g, moved[i]) && !restarts(g, still[i]) {
				saved, asked = saved-o.RestartSeconds(g), asked+o.Tuning.Hysteresis*before
			}
		}
	}
	if served != 0 {
		return served > 0
	}
	return saved > asked
}

func restarts(g *cluster.Gang, p cluster.Placement) bool {
	return !g.Held.Empty() && !p.SameShape(g.Held)
}
