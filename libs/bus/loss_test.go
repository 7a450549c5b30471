package bus

import (
	"strings"
	"testing"
	"time"
)

func TestWhatCountsAsALoss(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	made, facts, bucket := at.Add(-time.Hour), kindOf{maxAge: 24 * time.Hour}, kindOf{bucket: true}
	before := Seen{Created: made, First: 3, FirstTime: made, Last: 10, Messages: 8, Deleted: 1}
	with := func(change func(*Seen)) *Seen {
		s := before
		change(&s)
		return &s
	}
	for name, c := range map[string]struct {
		kind kindOf
		now  *Seen
		want string
		gone bool
	}{
		"the same":               {facts, &before, "", false},
		"more":                   {facts, with(func(s *Seen) { s.Last, s.Messages = 12, 10 }), "", false},
		"missing":                {facts, nil, "is missing", true},
		"made again":             {facts, with(func(s *Seen) { s.Created = at }), "was made again", false},
		"made again by itself":   {kindOf{mends: true}, with(func(s *Seen) { s.Created = at }), "", false},
		"shorter":                {facts, with(func(s *Seen) { s.Last = 9 }), "ends at 9, but had 10", true},
		"a shorter bucket":       {bucket, with(func(s *Seen) { s.Last = 9 }), "ends at 9, but had 10", true},
		"a gap":                  {facts, with(func(s *Seen) { s.Deleted = 3 }), "has a gap: 2 messages", false},
		"deleted keys":           {bucket, with(func(s *Seen) { s.Deleted = 3 }), "", false},
		"unreadable":             {facts, with(func(s *Seen) { s.Lost = 1 }), "cannot read", false},
		"damaged":                {facts, with(func(s *Seen) { s.Damaged, s.Deleted = "2 messages", 3 }), "2 messages", false},
		"a damaged bucket":       {bucket, with(func(s *Seen) { s.Damaged = "2 messages" }), "2 messages", false},
		"damaged and shorter":    {facts, with(func(s *Seen) { s.Damaged, s.Last = "2 messages", 9 }), "ends at 9, but had 10", true},
		"begins later":           {facts, with(func(s *Seen) { s.First = 5 }), "begins at 5, but began at 3", false},
		"the oldest have ended":  {kindOf{maxAge: time.Minute}, with(func(s *Seen) { s.First = 5 }), "", false},
		"records speak of more":  {facts, with(func(s *Seen) { s.Ends, s.Last = 20, 30 }), "had ended before 20", true},
		"shorter, and repaired":  {facts, with(func(s *Seen) { s.Last, s.Repaired = 9, "now" }), "", false},
		"made again, unrepaired": {facts, &Seen{Created: at}, "was made again", false},
	} {
		loss, lost := lossOf("S", c.kind, before, c.now, at)
		if lost != (c.want != "") || !strings.Contains(loss.Cause, c.want) || loss.Gone != c.gone {
			t.Errorf("%s: %+v, %v; want %q, gone %v", name, loss, lost, c.want, c.gone)
		}
	}
}

// A server of a cluster that was away may answer once with what it knew before.
func TestOneStaleAnswerIsNoLoss(t *testing.T) {
	var told []Loss
	g := &Guard{
		suspected: map[string]bool{}, remembered: remembered{Streams: map[string]Seen{}, Losses: map[string]Loss{}},
		save: func([]byte) error { return nil }, tell: func(l Loss) { told = append(told, l) },
	}
	made := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		last          uint64 // 0: the stream is missing
		usable, noted bool
	}{{10, true, false}, {9, false, false}, {10, true, false}, {0, false, false}, {12, true, false}, {11, false, false}, {11, false, true}} {
		there := map[string]*Seen{}
		if step.last > 0 {
			there["JOBS"] = &Seen{Created: made, First: 1, Last: step.last, Messages: step.last}
		}
		if err := g.compare(there, made); err != nil {
			t.Fatal(err)
		}
		if err := g.usable(); (err == nil) != step.usable || (len(told) > 0) != step.noted {
			t.Errorf("ends at %d: usable %v, told %v; want %+v", step.last, err, told, step)
		}
	}
}
