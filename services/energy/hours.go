package energy

import (
	"maps"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/energy/report"
)

// bookHour books an interval in the book of the hour in which it began, by the same rules as in the node's book, which
// does not have it yet: there the hour can read what went before.
func (l *ledger) bookHour(before Book, r reading) {
	p := l.hours[contract.HourKey(r.Node, r.From)]
	b := (*Book)(&p.value)
	if b.Node == "" {
		*b = Book{Boot: before.Boot, Sequence: before.Sequence, To: before.To, StreamSequence: before.StreamSequence, Owed: before.Owed, Running: opened(before.Running)}
	}
	if b.has(r.Measured, r.stream) {
		return
	}
	earlier := b.Methods
	b.add(r.Measured, r.stream, l.rules())
	for _, m := range earlier { // its totals have been measured by them
		b.Methods = include(b.Methods, m)
	}
	b.Owners = l.owners(b.Owners, b.Running)
	if l.price != nil {
		if now := l.price(r.From.Truncate(time.Hour)); now.GramsPerKWh != nil {
			b.CO2eGramsPerKWh = new(*now.GramsPerKWh * now.PUE)
		}
	}
	p.changed = true
}

// owners adds the owners of the jobs with accounts to the known ones, as far as the register has reported them. A known
// owner stays: the ledger drops the record of a job with its account, and the hour goes on.
func (l *ledger) owners(known map[train.JobID]contract.Owner, accounts map[train.JobID]train.Account) map[train.JobID]contract.Owner {
	owners := make(map[train.JobID]contract.Owner, len(accounts))
	maps.Copy(owners, known)
	for id := range accounts {
		if job, known := l.jobs[id]; known {
			owners[id] = report.OwnerOf(job.Spec)
		}
	}
	return owners
}

// opened returns empty accounts of the jobs that already run: a gap that reaches into the hour is theirs.
func opened(running map[train.JobID]train.Account) map[train.JobID]train.Account {
	accounts := make(map[train.JobID]train.Account, len(running))
	for job, a := range running {
		metering := make(map[string]train.Metering, len(a.Metering))
		for component := range a.Metering {
			metering[component] = train.Metering{}
		}
		accounts[job] = train.Account{Job: job, Metering: metering}
	}
	return accounts
}
