package explain

import (
	"cmp"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
)

// predictedStarts is for how many waiting jobs a start is predicted: further down the queue a number would only
// pretend.
const predictedStarts = 200

// ground is the place in which a gang finds its devices: a node, or all nodes of a kind if gangs may span them.
type ground struct {
	devices  int
	memory   int64
	class    string
	releases []release
}

// release is a number of devices, and main memory in bytes, that come free after a time in seconds.
type release struct {
	seconds float64
	devices int
	ram     int64
}

// grounds are all of them, and the one of each node.
func (a *account) grounds() ([]ground, []int) {
	type kind struct {
		model, class, island string
		memory               int64
	}
	var all []ground
	of, byKind := make([]int, len(a.Nodes)), map[kind]int{}
	for i := range a.Nodes {
		n := &a.Nodes[i]
		is := kind{n.Model, n.Class, n.Island, n.Memory}
		at, known := byKind[is]
		if !known || !a.Spans {
			at = len(all)
			byKind[is] = at
			all = append(all, ground{memory: n.Memory, class: n.Class})
		}
		of[i] = at
		g := &all[at]
		g.devices += n.Room()
		g.releases = append(g.releases, release{0, max(a.Ledger.Free(i), 0), a.ramLeft(i)})
	}
	return all, of
}

// ramLeft is the main memory that is left on a node: the first of several that are one machine has it.
func (a *account) ramLeft(node int) int64 {
	if node > 0 && a.Nodes[node-1].ID == a.Nodes[node].ID {
		return 0
	}
	return a.Ledger.RAMLeft(node)
}

// after returns the time until the given number of devices and so much main memory are free, infinite if they never
// are.
func (g *ground) after(devices int, ram int64) float64 {
	for _, r := range g.releases {
		if devices, ram = devices-r.devices, ram-r.ram; devices <= 0 && ram <= 0 {
			return r.seconds
		}
	}
	return math.Inf(1)
}

// occupy takes what comes free first and gives it back after until seconds.
func (g *ground) occupy(devices int, ram int64, until float64) {
	taken, wanted := devices, ram
	for i := range g.releases {
		r := &g.releases[i]
		take, of := min(r.devices, taken), min(r.ram, wanted)
		r.devices, taken, r.ram, wanted = r.devices-take, taken-take, r.ram-of, wanted-of
	}
	g.releases = slices.DeleteFunc(g.releases, func(r release) bool { return r.devices == 0 && r.ram == 0 })
	r := release{until, devices, ram}
	at, _ := slices.BinarySearchFunc(g.releases, r, func(x, y release) int { return cmp.Compare(x.seconds, y.seconds) })
	g.releases = slices.Insert(g.releases, at, r)
}

// forecast predicts when every gang starts and ends. It plays the queue forward three times: as expected, and with all
// jobs as short and as long as their intervals say.
func (a *account) forecast() {
	a.forecasts = make([]train.Forecast, len(a.Gangs))
	for _, g := range a.Gangs {
		if left, known := a.Snapshot.Forecast(g, g.Got); known && !g.Got.Empty() {
			a.forecasts[g.Rank].Finish = &left
		}
	}
	line := a.line()
	if len(line) == 0 {
		return
	}
	runs := make([]train.Span, len(line)) // on its least, from its start
	for i, g := range line {
		runs[i] = unknown()
		least := cluster.Placement{Parts: []cluster.Part{{Count: g.Least}}}
		if run, known := a.Snapshot.Forecast(g, least); known {
			runs[i] = run
		}
	}
	expected := a.play(line, runs, func(s train.Span) float64 { return s.Expected })
	low := a.play(line, runs, func(s train.Span) float64 { return s.Low })
	high := a.play(line, runs, func(s train.Span) float64 { return s.High })
	for i, g := range line {
		start := train.Span{Expected: expected[i], Low: min(low[i], expected[i]), High: max(high[i], expected[i])}
		if math.IsInf(start.High, 1) {
			continue
		}
		f := &a.forecasts[g.Rank]
		f.Start = &start
		if run := runs[i]; !math.IsInf(run.High, 1) {
			f.Finish = &train.Span{Expected: start.Expected + run.Expected, Low: start.Low + run.Low, High: start.High + run.High}
		}
	}
}

func unknown() train.Span {
	return train.Span{Expected: math.Inf(1), Low: math.Inf(1), High: math.Inf(1)}
}

// play plays the queue forward: each waiting gang in turn starts with its least where enough devices are released
// first, by the predicted ends of those that hold them. It returns the starts.
func (a *account) play(line []*cluster.Gang, runs []train.Span, which func(train.Span) float64) []float64 {
	grounds, of := a.grounds()
	for _, g := range a.Gangs {
		if g.Primary != nil {
			continue
		}
		end := math.Inf(1)
		if left := a.forecasts[g.Rank].Finish; left != nil {
			end = which(*left)
		}
		for _, part := range g.Got.Parts {
			at := &grounds[of[part.Node]]
			_, ram := g.Needs(part.Count, part.Servers)
			at.releases = append(at.releases, release{end, part.Count, ram})
		}
	}
	for i := range grounds {
		slices.SortFunc(grounds[i].releases, func(x, y release) int { return cmp.Compare(x.seconds, y.seconds) })
	}
	starts := make([]float64, len(line))
	for i, g := range line {
		best := -1
		starts[i] = math.Inf(1)
		_, ram := g.Needs(g.Least, g.ServersLeast())
		for k := range grounds {
			at := &grounds[k]
			if at.devices >= g.Least && g.SuitsKind(at.memory, at.class) && at.after(g.Least, ram) < starts[i] {
				best, starts[i] = k, at.after(g.Least, ram)
			}
		}
		if best >= 0 {
			grounds[best].occupy(g.Least, ram, starts[i]+which(runs[i]))
		}
	}
	return starts
}

// holdersShown is for how many waiting gangs holders are named.
const holdersShown = 50

// holders are the gangs with devices that a waiting gang could use, those first that end first.
func (a *account) holders(g *cluster.Gang) []train.JobID {
	type held struct {
		job train.JobID
		end float64
	}
	var all []held
	for _, o := range a.Gangs {
		usable := slices.ContainsFunc(o.Got.Parts, func(p cluster.Part) bool { return g.Suits(&a.Nodes[p.Node]) })
		if o == g || !usable {
			continue
		}
		end := math.Inf(1)
		if left := a.forecasts[o.Rank].Finish; left != nil {
			end = left.Expected
		}
		all = append(all, held{o.ID, end})
	}
	slices.SortStableFunc(all, func(x, y held) int { return cmp.Compare(x.end, y.end) })
	var ids []train.JobID
	for _, h := range all[:min(len(all), train.MaxHolders)] {
		ids = append(ids, h.job)
	}
	return ids
}

// line is the first waiting gangs that could run and that quotas and the power budget let run: nobody foresees when
// these have room again.
func (a *account) line() []*cluster.Gang {
	var line []*cluster.Gang
	for _, g := range a.waiting {
		if _, never := a.spaces.Impossible(g); !never && a.allowed(g) {
			line = append(line, g)
		}
		if len(line) == predictedStarts {
			break
		}
	}
	return line
}
