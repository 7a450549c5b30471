package cluster

// Refusals remembers which requests found no place. Until the ledger changes, the same request finds none for a gang
// that comes later in the queue, for which more is reserved to others. K is all that a request depends on besides.
type Refusals[K comparable] struct {
	ledger  *Ledger
	version int
	// ranks are the first gangs in the queue that were refused.
	ranks map[K]int
}

// NewRefusals is for what a ledger may give.
func NewRefusals[K comparable](l *Ledger) *Refusals[K] {
	return &Refusals[K]{ledger: l, ranks: map[K]int{}}
}

// Add enters that a gang was refused.
func (r *Refusals[K]) Add(g *Gang, request K) {
	if !g.isNew() {
		return
	}
	r.renew()
	if first, known := r.ranks[request]; !known || g.Rank < first {
		r.ranks[request] = g.Rank
	}
}

// Has says whether a gang need not ask.
func (r *Refusals[K]) Has(g *Gang, request K) bool {
	r.renew()
	first, known := r.ranks[request]
	return known && first <= g.Rank && g.isNew()
}

func (r *Refusals[K]) renew() {
	if r.version != r.ledger.version {
		r.version = r.ledger.version
		clear(r.ranks)
	}
}

// isNew says that a gang has nothing of its own and avoids nothing, so that it is like others with the same request.
func (g *Gang) isNew() bool {
	return g.Got.Empty() && g.Held.Empty() && g.Former.Empty() && len(g.Slow) == 0
}
