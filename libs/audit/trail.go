package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// entry is what was asked for, and where that is stored.
type entry struct {
	contract.AuditEntry
	stream   string
	sequence uint64
}

// The outcomes of an entry.
const (
	taken   = "taken"
	refused = "refused"
)

// Filter says which entries are read. Empty fields choose all.
type Filter struct {
	// User is who asked, Job the job that it is about, From the earliest time.
	User, Job string
	From      time.Time
}

func (f Filter) shows(d contract.AuditEntry) bool {
	return (f.User == "" || d.Who == f.User) && (f.Job == "" || d.Entity == "job" && d.ID == f.Job) && !d.Time.Before(f.From)
}

// Read returns who asked for what in the order of time, from the requests themselves and what became of them.
func Read(ctx context.Context, b *bus.Bus, f Filter) ([]contract.AuditEntry, error) {
	t := &trail{answers: map[string]string{}}
	for _, stream := range []string{event.StreamPoison, event.StreamJobs, event.StreamTune, event.StreamNodes, event.StreamPeople, event.StreamAccess} {
		filters := subjectsOf(stream, f.Job)
		if len(filters) == 0 {
			continue
		}
		if err := b.Stored(ctx, stream, filters, f.From, func(m bus.Message) { t.read(stream, m) }); err != nil {
			return nil, err
		}
	}
	entries := []contract.AuditEntry{}
	for _, d := range t.finished() {
		if f.shows(d.AuditEntry) {
			entries = append(entries, d.AuditEntry)
		}
	}
	slices.SortStableFunc(entries, func(x, y contract.AuditEntry) int { return x.Time.Compare(y.Time) })
	return entries, nil
}

// subjectsOf returns the subjects of a stream that tell what was asked and what became of it.
func subjectsOf(stream, job string) (subjects []string) {
	for _, k := range event.Kinds() {
		answers := k.Fact == event.FactRejected || k.Fact == event.FactEditDecided || k.Fact == event.FactRefused || k.Entity == "poison"
		if k.Stream != stream || !k.Asked() && !answers {
			continue
		}
		id := "*"
		if k.Entity == "job" && job != "" {
			id = job
		}
		subjects = append(subjects, event.Subject{Entity: k.Entity, ID: id, Fact: k.Fact, Version: k.Version}.String())
	}
	return subjects
}

// trail gathers entries and answers.
type trail struct {
	entries []entry
	// answers are why something was refused, by the request that they answer: its stream and sequence, or its entity and
	// id for a submission.
	answers map[string]string
}

func (t *trail) read(stream string, m bus.Message) {
	switch m.Parsed.Fact {
	case event.FactSetAside:
		if p, err := event.Decode[event.Poisoned](m.Data); err == nil && m.Parsed.Entity == "poison" {
			t.answers[requestKey(p.Stream, p.Sequence)] = p.Reason
		}
	case event.FactRejected:
		if r, err := event.Decode[event.Rejected](m.Data); err == nil {
			t.answers[m.Parsed.Entity+"/"+m.Parsed.ID] = codes(r.Reasons)
		}
	case event.FactEditDecided:
		if e, err := event.Decode[event.EditDecided](m.Data); err == nil && len(e.Refused) > 0 {
			t.answers[requestKey(stream, e.Request)] = codes(e.Refused)
		}
	case event.FactRefused:
		if r, err := event.Decode[event.AccessRefused](m.Data); err == nil {
			t.entries = append(t.entries, refusal(m, r))
		}
	default:
		t.entries = append(t.entries, asked(stream, m))
	}
}

// refusal is the entry of what web refused.
func refusal(m bus.Message, r event.AccessRefused) entry {
	d := entry{AuditEntry: contract.AuditEntry{Time: m.Stored, Who: r.Person, Door: r.Door, Fact: string(r.Operation), Outcome: refused, Why: r.Message, ID: r.Request}}
	if r.Missed > 0 {
		d.Why = fmt.Sprintf("%s (and %d before that are not stored)", d.Why, r.Missed)
	}
	parts := strings.Split(strings.Trim(r.Request, "/"), "/") // POST, api, v1, jobs, ID, FACT
	if len(parts) > 4 {
		d.Entity, d.ID = strings.TrimSuffix(parts[3], "s"), parts[4]
	}
	return d
}

// asked is the entry of a request. Its outcome is not known yet.
func asked(stream string, m bus.Message) entry {
	who, err := m.Asker()
	told := contract.AuditEntry{Time: m.Stored, Door: cmp.Or(who.Door, "bus"), Fact: m.Parsed.Fact, Entity: m.Parsed.Entity, ID: m.Parsed.ID, Outcome: taken}
	d := entry{told, stream, m.Sequence}
	switch {
	case err != nil:
		d.Who, d.Outcome, d.Why = "?", refused, err.Error()
	case who.Name() != "":
		d.Who = who.Name()
	case who.Role == "web":
		d.Who = "owner"
	default:
		d.Who = cmp.Or(who.Role, "unknown") // on a bus without accounts
	}
	return d
}

// finished returns the entries with what became of them.
func (t *trail) finished() []entry {
	for i, d := range t.entries {
		why, answered := t.answers[requestKey(d.stream, d.sequence)]
		if !answered && d.Fact == event.FactSubmitted {
			why, answered = t.answers[d.Entity+"/"+d.ID]
		}
		if answered && d.Outcome == taken {
			t.entries[i].Outcome, t.entries[i].Why = refused, why
		}
	}
	return t.entries
}

func requestKey(stream string, sequence uint64) string { return fmt.Sprintf("%s/%d", stream, sequence) }

func codes(reasons []train.Reason) string {
	words := make([]string, len(reasons))
	for i, r := range reasons {
		words[i] = r.Code
	}
	return strings.Join(words, ", ")
}
