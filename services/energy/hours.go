package energy

import (
	"context"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/energy/report"
)

// bookHour books an interval in the book of the hour in which it began, by the same rules as in the node's book and
// before it, so that the hour can read there what went before.
func (l *ledger) bookHour(ctx context.Context, m event.Measured, stream uint64) error {
	l.mu.Lock()
	before := l.nodeBooks[m.Node]
	l.mu.Unlock()
	_, err := l.hours.Modify(ctx, contract.HourKey(m.Node, m.From), func(stored *contract.Book) (bool, error) {
		b := (*Book)(stored)
		if b.Node == "" {
			*b = Book{Boot: before.Boot, Sequence: before.Sequence, To: before.To, StreamSequence: before.StreamSequence, Owed: before.Owed, Running: opened(before.Running)}
		}
		if b.has(m, stream) {
			return false, nil
		}
		b.add(m, stream, l.rules())
		b.Owners = l.owners(b.Running)
		return true, nil
	})
	return err
}

// owners returns the owners of the jobs with accounts, as far as the register has reported them.
func (l *ledger) owners(accounts map[train.JobID]train.Account) map[train.JobID]contract.Owner {
	l.mu.Lock()
	defer l.mu.Unlock()
	owners := make(map[train.JobID]contract.Owner, len(accounts))
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
