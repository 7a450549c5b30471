package cluster

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// entry is what was asked for.
type entry struct {
	Time time.Time `json:"time"`
	// Who is a person, or a role of the bus if no person is known. Door is how the person came.
	Who  string `json:"who"`
	Door string `json:"door"`
	// Fact is what was asked, or the operation that was refused. Entity and ID are what it is about.
	Fact   string `json:"fact"`
	Entity string `json:"entity"`
	ID     string `json:"id"`
	// Outcome is taken or refused, Why the reason for that.
	Outcome string `json:"outcome"`
	Why     string `json:"why,omitempty"`

	stream   string
	sequence uint64
}

// The outcomes of a entry.
const (
	taken   = "taken"
	refused = "refused"
)

// auditFilter says which entries are shown.
type auditFilter struct {
	user, job string
	since     time.Time
}

func (f auditFilter) shows(d entry) bool {
	return (f.user == "" || d.Who == f.user) && (f.job == "" || d.Entity == "job" && d.ID == f.job) && !d.Time.Before(f.since)
}

// audit shows who asked for what, from the requests themselves and what became of them.
func audit(ctx context.Context, a *console.Console, b *bus.Bus, f auditFilter) error {
	l := &auditLog{answers: map[string]string{}}
	for _, stream := range []string{event.StreamPoison, event.StreamJobs, event.StreamTune, event.StreamNodes, event.StreamPeople, event.StreamAccess} {
		filters, some := auditSubjects(stream, f.job)
		if !some {
			continue
		}
		if err := b.Stored(ctx, stream, filters, f.since, func(m bus.Message) { l.read(stream, m) }); err != nil {
			return err
		}
	}
	entries := []entry{}
	for _, d := range l.finished() {
		if f.shows(d) {
			entries = append(entries, d)
		}
	}
	slices.SortStableFunc(entries, func(x, y entry) int { return x.Time.Compare(y.Time) })
	return a.Show(entries, "TIME\tWHO\tBY\tASKED\tABOUT\tOUTCOME", func(w io.Writer) {
		for _, d := range entries {
			outcome := strings.TrimSuffix(d.Outcome+": "+d.Why, ": ")
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", d.Time.Local().Format(time.DateTime), render.Cell(d.Who, 24), render.Cell(d.Door, 12), render.EscapeText(d.Fact),
				render.Cell(strings.TrimSpace(d.Entity+" "+d.ID), 48), render.Cell(outcome, 160))
		}
	})
}

// auditSubjects returns the subjects of a stream that tell what was asked and what became of it.
func auditSubjects(stream, job string) (subjects []string, some bool) {
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
	return subjects, len(subjects) > 0
}

// auditLog gathers entries and answers.
type auditLog struct {
	entries []entry
	// answers are why something was refused, by the request that they answer: its stream and sequence, or its entity and
	// id for a submission.
	answers map[string]string
}

func (l *auditLog) read(stream string, m bus.Message) {
	switch m.Parsed.Fact {
	case event.FactSetAside:
		if p, err := event.Decode[event.Poisoned](m.Data); err == nil && m.Parsed.Entity == "poison" {
			l.answers[requestKey(p.Stream, p.Sequence)] = p.Reason
		}
	case event.FactRejected:
		if r, err := event.Decode[event.Rejected](m.Data); err == nil {
			l.answers[m.Parsed.Entity+"/"+m.Parsed.ID] = codes(r.Reasons)
		}
	case event.FactEditDecided:
		if e, err := event.Decode[event.EditDecided](m.Data); err == nil && len(e.Refused) > 0 {
			l.answers[requestKey(stream, e.Request)] = codes(e.Refused)
		}
	case event.FactRefused:
		if r, err := event.Decode[event.AccessRefused](m.Data); err == nil {
			l.entries = append(l.entries, refusal(m, r))
		}
	default:
		l.entries = append(l.entries, asked(stream, m))
	}
}

// refusal is the entry that web refused.
func refusal(m bus.Message, r event.AccessRefused) entry {
	d := entry{Time: m.Stored, Who: r.Person, Door: r.Door, Fact: string(r.Operation), Outcome: refused, Why: r.Message, ID: r.Request}
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
	d := entry{Time: m.Stored, Door: cmp.Or(who.Door, "bus"), Fact: m.Parsed.Fact, Entity: m.Parsed.Entity, ID: m.Parsed.ID, Outcome: taken, stream: stream, sequence: m.Sequence}
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
func (l *auditLog) finished() []entry {
	for i, d := range l.entries {
		why, answered := l.answers[requestKey(d.stream, d.sequence)]
		if !answered && d.Fact == event.FactSubmitted {
			why, answered = l.answers[d.Entity+"/"+d.ID]
		}
		if answered && d.Outcome == taken {
			l.entries[i].Outcome, l.entries[i].Why = refused, why
		}
	}
	return l.entries
}

func requestKey(stream string, sequence uint64) string { return fmt.Sprintf("%s/%d", stream, sequence) }

func codes(reasons []train.Reason) string {
	words := make([]string, len(reasons))
	for i, r := range reasons {
		words[i] = r.Code
	}
	return strings.Join(words, ", ")
}
