package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/web/index"
)

// Energy is what the nodes have spent, in three ways that each add up to the same.
type Energy struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Methods are how it was measured.
	Methods []string `json:"methods"`
	// PowerBudgetWatts is what all devices together may draw by the newest plan; 0: no bound.
	PowerBudgetWatts float64 `json:"power_budget_watts,omitempty"`
	// Quotas are those of tenants, in the order of their names.
	Quotas []EnergyQuota `json:"quotas"`
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
	// CO2eGrams is the carbon of it all, with the overhead of the building; nil unless the tariff knew every hour.
	CO2eGrams *float64 `json:"co2e_g,omitempty"`
}

// All is the whole energy.
func (s Spent) All() unit.Energy { return s.Active + s.Idle + s.Unattributed }

// EnergyQuota is what the jobs of a tenant may use in a month, and have used in it.
type EnergyQuota struct {
	Tenant string `json:"tenant"`
	// Month is this one, in UTC, as 2006-01.
	Month string `json:"month"`
	// KWh is the quota of a month.
	KWh float64 `json:"energy_kwh_per_month"`
	// Used is the energy of the tenant's jobs since the month began.
	Used unit.Energy `json:"used_uj"`
}

// Ledger is what energy reports are made of.
type Ledger struct {
	// Books are the energy of each node in each hour, by its key in the contract.
	Books map[string]contract.Book `json:"books"`
	// Jobs are the jobs that ran in these hours, without what only their owners may see.
	Jobs []train.Job `json:"jobs"`
	// Accounts are what each of these jobs used from its first attempt to its end.
	Accounts []train.Account `json:"accounts"`
	// Groups are the groups of recurring jobs, by their keys in the contract.
	Groups map[string]contract.Group `json:"groups"`
}

// LedgerDays is the largest number of days of one answer: each day of a node is 24 books.
const LedgerDays = 92

// NewLedger picks what is known about the jobs in books.
func NewLedger(x *index.Index, books map[string]contract.Book, groups map[string]contract.Group) Ledger {
	l := Ledger{Books: books, Jobs: []train.Job{}, Accounts: []train.Account{}, Groups: groups}
	ran := map[train.JobID]bool{}
	for _, b := range books {
		for id := range b.Running {
			ran[id] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(ran)) {
		if j := x.Jobs.Get(string(id)); j != nil {
			l.Jobs = append(l.Jobs, j.Public())
		}
		if a := x.Accounts.Get(string(id)); a != nil {
			l.Accounts = append(l.Accounts, *a)
		}
	}
	return l
}

// jobsShown bounds the jobs of an answer.
const jobsShown = 200

// SpentIn adds up the books of hours, by their keys, that begin between two times. Days are those of the zone of from.
// The book of a running job may not name its owner yet: the index does.
func SpentIn(x *index.Index, books map[string]contract.Book, from, to time.Time) Energy {
	days, nodes, users, jobs, total, methods := sums{}, sums{}, sums{}, sums{}, sum{}, map[string]bool{}
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
			job := jobs.of(string(id))
			job.Name = cmp.Or(owner.Name, job.Name)
			for _, s := range []*sum{day, node, &total, users.of(owner.User), job} {
				s.add(a.Active(), a.Idle, 0, book.CO2eGramsPerKWh)
			}
		}
		for _, t := range book.Totals {
			for _, s := range []*sum{day, node, &total} {
				s.add(0, t.Idle, t.Unattributed, book.CO2eGramsPerKWh)
			}
		}
	}
	byKey := func(x, y Spent) int { return cmp.Compare(x.Key, y.Key) }
	most := func(x, y Spent) int { return cmp.Or(cmp.Compare(y.All(), x.All()), byKey(x, y)) }
	e := Energy{From: from, To: to, Methods: append([]string{}, slices.Sorted(maps.Keys(methods))...), PowerBudgetWatts: x.Plan().PowerBudgetWatts, Quotas: quotas(x, to), Total: total.Spent}
	e.Days, e.Nodes, e.Users, e.Jobs = days.sorted(byKey), nodes.sorted(most), users.sorted(most), jobs.sorted(most)
	e.Jobs = e.Jobs[:min(len(e.Jobs), jobsShown)]
	return e
}

// quotas returns the energy quotas, and how much of each has been used this month. The record of a tenant that has used
// nothing this month is still that of an earlier one.
func quotas(x *index.Index, now time.Time) []EnergyQuota {
	all, month := []EnergyQuota{}, now.UTC().Format(contract.MonthForm)
	for key, t := range x.Tenants.All() {
		if t.EnergyKWh == nil {
			continue
		}
		q := EnergyQuota{Tenant: t.Name, Month: month, KWh: *t.EnergyKWh}
		if used := x.Spendings.Get(key); used != nil && used.Month == month {
			q.Used = used.Energy
		}
		all = append(all, q)
	}
	slices.SortFunc(all, func(x, y EnergyQuota) int { return cmp.Compare(x.Tenant, y.Tenant) })
	return all
}

// sum is an energy under way. unknown is set once the carbon of a part of it is unknown.
type sum struct {
	Spent
	unknown bool
}

func (s *sum) add(active, idle, unattributed unit.Energy, gramsPerKWh *float64) {
	s.Active, s.Idle, s.Unattributed = s.Active+active, s.Idle+idle, s.Unattributed+unattributed
	all := active + idle + unattributed
	if all == 0 {
		return
	}
	if s.unknown = s.unknown || gramsPerKWh == nil; s.unknown {
		s.CO2eGrams = nil
		return
	}
	if s.CO2eGrams == nil {
		s.CO2eGrams = new(float64)
	}
	*s.CO2eGrams += *gramsPerKWh * all.KilowattHours()
}

// sums are energies by their keys.
type sums map[string]*sum

func (s sums) of(key string) *sum {
	if s[key] == nil {
		s[key] = &sum{Spent: Spent{Key: key}}
	}
	return s[key]
}

func (s sums) sorted(order func(x, y Spent) int) []Spent {
	all := []Spent{}
	for _, v := range s {
		if v.All() > 0 {
			all = append(all, v.Spent)
		}
	}
	slices.SortFunc(all, order)
	return all
}
