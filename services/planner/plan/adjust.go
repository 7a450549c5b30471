package plan

import (
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/place"
)

// adjust gives gangs the sizes that their experiments want if no other gang loses by it. It gives guests devices of
// their own if no gang waits for these and the progress that all gain is worth the restart.
func (d *decision) adjust() {
	if d.plain || d.NoNews {
		return
	}
	starved := false
	for _, g := range d.Gangs {
		starved = starved || g.Starved && g.Got.Empty()
	}
	for _, g := range d.Gangs {
		if !starved && g.Wanted > g.Got.Size() && !g.Got.Empty() && !g.Stuck() && !d.waitsAhead(g) {
			d.enlarge(g)
		}
	}
	if d.sharing != nil {
		d.sharing.Spread(d.spare(), d.finder)
	}
}

// waitsAhead says whether a gang waits that is ahead of another in the queue and could run.
func (d *decision) waitsAhead(g *cluster.Gang) bool {
	for _, o := range d.Gangs[:g.Rank] {
		if o.Got.Empty() && d.possible(o) {
			return true
		}
	}
	return false
}

// spare returns the number of free devices less the needs of waiting gangs that could run and do not share.
func (d *decision) spare() int {
	n := d.Total - d.Ledger.Taken()
	for _, g := range d.Gangs {
		if g.Got.Empty() && !g.Shares() && d.possible(g) {
			n -= g.Least
		}
	}
	return n
}

// enlarge gives a gang the size that its experiment wants: where it is, or as a whole elsewhere.
func (d *decision) enlarge(g *cluster.Gang) {
	mark, least, most, primary := d.Ledger.Mark(), g.Least, g.Most, g.Primary
	g.Least, g.Most = g.Wanted, g.Wanted
	p, found := cluster.Placement{}, false
	if primary == nil && g.Servers == nil {
		if p, found = place.Extend(d.Snapshot, g, g.Wanted); found {
			p.Memory = d.PartOf(g, p.Spots())
			found = d.Ledger.Take(g, p)
		}
	}
	if !found && len(g.Guests) == 0 && g.Servers == nil {
		d.Ledger.Return(g)
		p, found = d.finder.Find(g, g.Wanted, 0)
		found = found && d.Ledger.Take(g, p)
	}
	if !found {
		d.Ledger.Undo(mark)
		g.Least, g.Most = least, most
		return
	}
	g.LeavePrimary()
	place.Name(d.Snapshot)
	if d.sharing != nil {
		d.sharing.Joined(g)
		d.sharing.Look()
	}
}
