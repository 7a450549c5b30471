package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/web/index"
)

// Energy is what the nodes have spent, in three ways that each add up to the same.
type Energy struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Methods are how it was measured.
	Methods []string `json:"methods"`
	// Total is all of it.
	Total Spent `json:"total"`
	// Days are in their order, Nodes, Users and Jobs by energy; at most 200 jobs are listed.
	Days  []Spent `json:"days"`
	Nodes []Spent `json:"nodes"`
	Users []Spent `json:"users"`
	Jobs  []Spent `json:"jobs"`
}

// Spent is the energy of a day, a node, a user or a job.
type Spent struct {
	// Key is the day as 2006-01-02, the id of a node or job, or the name of a user.
	Key string `json:"key"`
	// Name is what its user called a job.
	Name string `json:"name,omitempty"`
	// Active is what jobs used, Idle what devices took that did not work, Unattributed what belongs to no job.
	Active       unit.Energy `json:"active_uj"`
	Idle         unit.Energy `json:"idle_uj,omitempty"`
	Unattributed unit.Energy `json:"unattributed_uj,omitempty"`
}

// All is the whole energy.
func (s Spent) All() unit.Energy { return s.Active + s.Idle + s.Unattributed }

// jobsShown bounds the jobs of an answer.
const jobsShown = 200

// SpentIn adds up the books of hours, by their keys, that begin between two times. Days are those of the zone of from.
// The book of a running job may not name its owner yet: the index does.
func SpentIn(x *index.Index, books map[string]contract.Book, from, to time.Time) Energy {
	days, nodes, users, jobs, methods := sums{}, sums{}, sums{}, sums{}, map[string]bool{}
	e := Energy{From: from, To: to}
	for key, book := range books {
		_, hour, _ := strings.Cut(key, ".")
		start, err := time.Parse(contract.HourForm, hour)
		if err != nil || start.Before(from) || !start.Before(to) {
			continue
		}
		day, node := days.of(start.In(from.Location()).Format(time.DateOnly)), nodes.of(string(book.Node))
		for _, m := range book.Methods {
			methods[m] = true
		}
		for id, a := range book.Running {
			owner := book.Owners[id]
			if j := x.Jobs.Get(string(id)); j != nil {
				owner = contract.Owner{Name: j.Spec.Name, User: j.Spec.User}
			}
			user, job := users.of(owner.User), jobs.of(string(id))
			job.Name = cmp.Or(owner.Name, job.Name)
			for _, s := range []*Spent{day, node, user, job, &e.Total} {
				s.Active += a.Active()
				s.Idle += a.Idle
			}
		}
		for _, t := range book.Totals {
			for _, s := range []*Spent{day, node, &e.Total} {
				s.Idle += t.Idle
				s.Unattributed += t.Unattributed
			}
		}
	}
	e.Methods = slices.Sorted(maps.Keys(methods))
	byKey := func(x, y Spent) int { return cmp.Compare(x.Key, y.Key) }
	most := func(x, y Spent) int { return cmp.Or(cmp.Compare(y.All(), x.All()), byKey(x, y)) }
	e.Days, e.Nodes, e.Users, e.Jobs = days.sorted(byKey), nodes.sorted(most), users.sorted(most), jobs.sorted(most)
	e.Jobs = e.Jobs[:min(len(e.Jobs), jobsShown)]
	return e
}

// sums are energies by their keys.
type sums map[string]*Spent

func (s sums) of(key string) *Spent {
	if s[key] == nil {
		s[key] = &Spent{Key: key}
	}
	return s[key]
}

func (s sums) sorted(order func(x, y Spent) int) []Spent {
	all := []Spent{}
	for _, v := range s {
		if v.All() > 0 {
			all = append(all, *v)
		}
	}
	slices.SortFunc(all, order)
	return all
}
