package web

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/services/web/index"
)

const (
	// maxConnections is how many connections a person has at once.
	maxConnections = 256
	// answerTime is how long a person may take to read an answer.
	answerTime = time.Minute
	// requestsPerMinute is how many requests a person makes if his tenant's record says nothing else.
	requestsPerMinute = 1200
)

// serveBounded serves people who have not said yet what they want.
func serveBounded(ctx context.Context, listener net.Listener, answers http.Handler) error {
	return run.ServePeers(ctx, listener, answers, maxConnections)
}

// rates bound how often each person publishes. A bucket holds the requests of a minute.
type rates struct {
	now func() time.Time
	mu  sync.Mutex
	of  map[string]*rate.Limiter
}

func newRates(now func() time.Time) *rates { return &rates{now: now, of: map[string]*rate.Limiter{}} }

// take takes a request from a person's bucket, or returns how long it takes until there is one.
func (r *rates) take(person string, perMinute int) (wait time.Duration, taken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, limit := r.now(), rate.Every(time.Minute/time.Duration(max(perMinute, 1)))
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

func (r *rates) forgetIdle(now time.Time) {
	if len(r.of) < mostRates {
		return
	}
	for person, l := range r.of {
		if l.TokensAt(now) >= float64(l.Burst()) {
			delete(r.of, person)
		}
	}
}

// inTime returns a problem if a person asks too often. The owner of the installation, who has no name, may.
func (s server) inTime(person access.Person) error {
	if person.Name == "" {
		return nil
	}
	most := requestsPerMinute
	tenant, err := access.Key(person.Tenant) // without one of his own there is no record
	s.known.read(func(x *index.Index) {
		if t := x.Tenants.Get(tenant); err == nil && t != nil && t.Requests != nil {
			most = *t.Requests
		}
	})
	wait, taken := s.rates.take(person.Name, most)
	if taken {
		return nil
	}
	seconds := int(math.Ceil(wait.Seconds()))
	p := problem(http.StatusTooManyRequests, fmt.Sprintf("TooManyRequests: %s asks for something more than %d times in a minute", person.Name, most),
		fmt.Sprintf("try again in %d s; `switchyard tenant set NAME --requests N` changes the bound", seconds))
	p.RetrySeconds = seconds
	return problemError{p}
}
