package throttle

import (
	"fmt"
	"testing"
	"time"
)

// A person makes the requests of a minute at once, and then goes on at that rate, while others are not slowed. Another
// bound acts at once.
func TestRequestsInAMinute(t *testing.T) {
	now := time.Unix(0, 0)
	r := New()
	count := func(person string, perMinute int) (taken int) {
		for ; taken < 10_000; taken++ {
			if wait, ok := r.Take(person, perMinute, now); !ok {
				if wait <= 0 || wait > time.Minute/time.Duration(perMinute)+time.Millisecond {
					t.Errorf("told to wait %v at %d in a minute", wait, perMinute)
				}
				break
			}
		}
		return taken
	}
	if got := count("ann", 60); got != 60 {
		t.Errorf("%d requests at once, want 60", got)
	}
	if got := count("bob", 60); got != 60 {
		t.Errorf("%d requests of another person, want 60", got)
	}
	now = now.Add(10 * time.Second)
	if got := count("ann", 60); got != 10 {
		t.Errorf("%d requests after 10 s, want 10", got)
	}
	now = now.Add(time.Minute)
	if got := count("ann", 30); got != 30 {
		t.Errorf("%d requests at the new bound, want 30", got)
	}
	for i := range 2 * mostRates {
		r.Take(fmt.Sprint("person ", i), 60, now)
		now = now.Add(time.Second)
	}
	if len(r.of) > mostRates {
		t.Errorf("%d people are remembered", len(r.of))
	}
}
