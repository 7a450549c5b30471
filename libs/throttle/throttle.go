// Package throttle bounds how often each person asks for something. It does not say what the bound is, and does not
// wait.
package throttle

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rates bound how often each person asks for something. A bucket holds the requests of a minute.
type Rates struct {
	mu sync.Mutex
	of map[string]*rate.Limiter
}

// New makes full buckets.
func New() *Rates { return &Rates{of: map[string]*rate.Limiter{}} }

// Take takes a request from a person's bucket at a time, or returns how long it takes until there is one.
func (r *Rates) Take(person string, perMinute int, now time.Time) (wait time.Duration, taken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	limit := rate.Every(time.Minute / time.Duration(max(perMinute, 1)))
	l := r.of[person]
	if l == nil {
		r.forgetIdle(now)
		l = rate.NewLimiter(limit, perMinute)
		r.of[person] = l
	}
	if l.Burst() != perMinute {
		l.SetLimitAt(now, limit)
		l.SetBurstAt(now, perMinute)
	}
	if l.AllowN(now, 1) {
		return 0, true
	}
	return time.Duration((1 - l.TokensAt(now)) / float64(limit) * float64(time.Second)), false
}

// mostRates is the number of people after which those who have been quiet are forgotten.
const mostRates = 1000

func (r *Rates) forgetIdle(now time.Time) {
	if len(r.of) < mostRates {
		return
	}
	for person, l := range r.of {
		if l.TokensAt(now) >= float64(l.Burst()) {
			delete(r.of, person)
		}
	}
}
