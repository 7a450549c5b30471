// Package report computes the rows of an energy report from the hours of the ledger and a tariff. It reads no clock and
// no ledger.
//
// The energy of an hour is priced as if spread evenly over it. The measured energy is that of the machines; cost and
// carbon are those of the facility, which is PUE times that. The rows add up to the measured energy: energy that no job
// used has its own rows.
package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/energy/tariff"
)

// By is the grouping of a report's rows.
type By string

// What rows can stand for.
const (
	ByJob    By = "job"
	ByUser   By = "user"
	ByTenant By = "tenant"
	ByNode   By = "node"
	ByMonth  By = "month"
)

// Kinds returns all of them.
func Kinds() []By { return []By{ByJob, ByUser, ByTenant, ByNode, ByMonth} }

// The rows of energy that no job used, in reports by job, user or tenant.
const (
	IdleRow         = "_idle"
	UnattributedRow = "_unattributed"
)

// Hour is the ledger's record of one node in one hour.
type Hour struct {
	Node  train.NodeID
	Start time.Time
	// Idle and Unattributed are by component, as are the energies of the jobs' accounts.
	Idle         map[string]unit.Energy
	Unattributed map[string]unit.Energy
	Jobs         []train.Account
	Owners       map[train.JobID]contract.Owner
	Methods      []string
	// GapSeconds is unmeasured time, Resets counts readings that were left out.
	GapSeconds float64
	Resets     uint64
}

// OwnerOf returns the owner of a submission.
func OwnerOf(s train.Spec) contract.Owner {
	return contract.Owner{Name: s.Name, User: s.User, Tenant: s.Tenant}
}

// owner returns the owner of a job that ran in an hour: by the hour's own record, else by the register.
func (q Question) owner(h Hour, job train.JobID) contract.Owner {
	if o, noted := h.Owners[job]; noted {
		return o
	}
	return OwnerOf(q.Jobs[job].Spec)
}

// Default is the cost of a job in its default configuration: the submitted batch size, and no power limit.
type Default struct {
	Energy  unit.Energy
	Seconds float64
}

// Question is the input of a report.
type Question struct {
	By       By
	From, To time.Time
	// Zone is the time zone of months and days.
	Zone  *time.Location
	Price func(time.Time) tariff.Price
	Jobs  map[train.JobID]train.Job
	// Accounts are those of whole jobs, whatever the period of the report.
	Accounts map[train.JobID]train.Account
	// Default returns the cost of a job in its default configuration, if known.
	Default func(train.Job) (Default, bool)
}

// Day is one day of all nodes.
type Day struct {
	Start        time.Time   `json:"start"`
	Active       unit.Energy `json:"active_uj"`
	Idle         unit.Energy `json:"idle_uj"`
	Unattributed unit.Energy `json:"unattributed_uj"`
}

// Report is the result.
type Report struct {
	By    By        `json:"by"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	Rows  []Row     `json:"rows"`
	Total Row       `json:"total"`
	Days  []Day     `json:"days"`
	// GapSeconds is time of all nodes without readings, Resets counts readings that were left out.
	GapSeconds float64 `json:"gap_seconds"`
	Resets     uint64  `json:"resets"`
}

// Make computes the report of a question from the hours of all nodes.
func Make(q Question, hours []Hour) Report {
	r := Report{By: q.By, From: q.From, To: q.To, Rows: []Row{}, Total: newRow("total"), Days: []Day{}}
	rows, days := map[string]*Row{}, map[time.Time]*Day{}
	row := func(key string) *Row {
		if rows[key] == nil {
			rows[key] = new(newRow(key))
		}
		return rows[key]
	}
	for _, h := range hours {
		if h.Start.Before(q.From) || !h.Start.Before(q.To) {
			continue
		}
		price := priceOf(h.Start, q.Price)
		day := dayOf(days, h.Start.In(q.Zone))
		r.GapSeconds += h.GapSeconds
		r.Resets += h.Resets
		for _, a := range h.Jobs {
			waste, part := wastedRatio(q.Jobs[a.Job], q.Accounts[a.Job]), whole(a)
			if q.By == ByNode {
				part = a
			}
			to := row(q.key(h, a.Job))
			to.addJob(part, waste, price)
			to.owner = q.owner(h, a.Job)
			r.Total.addJob(whole(a), waste, price)
			day.Active += a.Active()
			day.Idle += a.Idle
		}
		for component, e := range h.Idle {
			for _, to := range []*Row{row(q.rest(h, IdleRow)), &r.Total} {
				to.Idle += e
				to.add(component, e, h.Methods, price)
			}
			day.Idle += e
		}
		for component, e := range h.Unattributed {
			for _, to := range []*Row{row(q.rest(h, UnattributedRow)), &r.Total} {
				to.Unattributed += e
				to.add(component, e, h.Methods, price)
			}
			day.Unattributed += e
		}
	}
	for _, to := range rows {
		to.finish(q)
		r.Rows = append(r.Rows, *to)
	}
	r.Total.finish(q)
	slices.SortFunc(r.Rows, q.order)
	for _, start := range slices.SortedFunc(maps.Keys(days), time.Time.Compare) {
		r.Days = append(r.Days, *days[start])
	}
	return r
}

func dayOf(days map[time.Time]*Day, at time.Time) *Day {
	year, month, day := at.Date()
	start := time.Date(year, month, day, 0, 0, 0, 0, at.Location())
	if days[start] == nil {
		days[start] = &Day{Start: start}
	}
	return days[start]
}

// key returns the row of a job's energy in an hour.
func (q Question) key(h Hour, job train.JobID) string {
	switch q.By {
	case ByUser:
		return cmp.Or(q.owner(h, job).User, "unknown")
	case ByTenant:
		return cmp.Or(q.owner(h, job).Tenant, "unknown")
	case ByJob:
		return string(job)
	default:
		return q.rest(h, "")
	}
}

// rest returns the row of energy that no job used: that of the node or month, else the named one.
func (q Question) rest(h Hour, name string) string {
	switch q.By {
	case ByNode:
		return string(h.Node)
	case ByMonth:
		return h.Start.In(q.Zone).Format("2006-01")
	default:
		return name
	}
}

// order puts the largest first and months in their order; energy that no job used comes last.
func (q Question) order(a, b Row) int {
	if q.By == ByMonth {
		return strings.Compare(a.Key, b.Key)
	}
	rest := func(r Row) int {
		if r.Key == IdleRow || r.Key == UnattributedRow {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(rest(a), rest(b)), cmp.Compare(b.Energy, a.Energy), strings.Compare(a.Key, b.Key))
}

// Accounted says how the parts add up to the whole, and whether that is measured or modelled.
func (r Report) Accounted() string {
	t := r.Total
	text := fmt.Sprintf("Of %s (%s) jobs and their devices took %s", t.Energy, t.Known(), t.Active+t.Idle)
	if t.Unattributed > 0 {
		text += fmt.Sprintf(", and %s (%.1f %%) belongs to no job", t.Unattributed, 100*ratio(float64(t.Unattributed), float64(t.Energy)))
	}
	if r.GapSeconds >= 1 {
		text += fmt.Sprintf("; of %.0f s nothing is known", r.GapSeconds)
	}
	return text
}

// Known says whether the energy of a row is measured or modelled.
func (r Row) Known() string {
	switch {
	case len(r.Methods) == 0:
		return "nothing is known"
	case train.Modelled(r.Methods):
		return "modelled, not measured"
	case slices.Contains(r.Methods, train.MethodModelled):
		return "measured, and in part modelled"
	}
	return "measured"
}

// Components returns the components of all rows, in order.
func Components(r Report) []string { return slices.Sorted(maps.Keys(r.Total.Components)) }
