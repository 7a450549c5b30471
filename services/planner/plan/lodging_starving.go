package plan

import "slices"

// keep sets devices aside for jobs that starve and find no place beside others.
func (l *lodgings) keep() {
	finds := map[likeness]bool{}
	for _, j := range l.starving {
		if len(l.keeper.kept) == l.board.total {
			return
		}
		if one := l.byID[j.ID]; one != nil {
			alike := l.likeness(one)
			if _, asked := finds[alike]; !asked {
				finds[alike] = l.choose(one) != nil
			}
			if one.at.somewhere() || finds[alike] {
				continue
			}
		}
		l.keeper.setAside(j)
	}
}

// reserved says whether any of some devices is set aside for a job that is served before this one.
func (l *lodgings) reserved(one *lodger, at spots) bool {
	return slices.ContainsFunc(at, func(d spot) bool {
		j := l.keeper.kept[d]
		return j != nil && !one.held.has(d) && inLine(j, &one.Job) < 0
	})
}
