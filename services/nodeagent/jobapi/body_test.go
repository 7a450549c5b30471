package jobapi

import (
	"testing"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/strict"
)

func FuzzBodies(f *testing.F) {
	for _, body := range []string{`{"done":2}`, `{"step":1,"metrics":{"a":1e308}}`, `{"epochs_done":-1}`, `{"outcome":"finished"}`, `null`, `{"rank":1e2}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var done doneBody
		var beat stepsBody
		var epoch epochBody
		var saved checkpointBody
		var end endBody
		var p profile
		for _, b := range []struct {
			body  any
			check func() strict.Problems
		}{
			{&done, func() strict.Problems { return done.check() }},
			{&beat, func() strict.Problems { return beat.check() }},
			{&epoch, func() strict.Problems { return epoch.check() }},
			{&saved, func() strict.Problems { return saved.check() }},
			{&end, func() strict.Problems { return end.check() }},
			{&p, func() strict.Problems { return p.check() }},
		} {
			problems := parseAndCheck(data, b.body, b.check)
			for _, problem := range problems {
				if problem.Message == "" {
					t.Fatalf("a problem without words in %q", data)
				}
			}
			if len(problems) > 0 {
				continue
			}
			// What is accepted can be encoded.
			if _, err := (event.Fact{Body: b.body}).Encode(); err != nil {
				t.Fatal(err)
			}
		}
		if done.Done != nil && *done.Done < 0 && len(done.check()) == 0 {
			t.Fatal("a negative number was taken")
		}
	})
}
