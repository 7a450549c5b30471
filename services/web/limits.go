package web

import (
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/services/web/index"
)

const (
	// maxConnections is how many connections a person has at once.
	maxConnections = 256
	// answerTime is how long a person may take to read an answer.
	answerTime = time.Minute
)

// callerInTime returns who asks, or a problem if that person asks too often.
func (s server) callerInTime(r *http.Request) (access.Person, error) {
	person, err := s.caller(r)
	if err == nil {
		err = s.inTime(person)
	}
	return person, err
}

// inTime returns a problem if a person asks too often. The owner of the installation, who has no name, may.
func (s server) inTime(person access.Person) error {
	if person.Name == "" {
		return nil
	}
	most := access.RequestsPerMinute
	tenant, err := access.Key(person.Tenant) // without one of his own there is no record
	s.known.read(func(x *index.Index) {
		if t := x.Tenants.Get(tenant); err == nil && t != nil && t.Requests != nil {
			most = *t.Requests
		}
	})
	wait, taken := s.rates.Take(person.Name, most, s.now())
	if taken {
		return nil
	}
	seconds := int(math.Ceil(wait.Seconds()))
	p := problem(http.StatusTooManyRequests, fmt.Sprintf("TooManyRequests: %s asks for something more than %d times in a minute", person.Name, most),
		fmt.Sprintf("try again in %d s; `switchyard tenant set NAME --requests N` changes the bound", seconds))
	p.RetrySeconds = seconds
	return problemError{p}
}

// underWay counts what each person has under way.
type underWay struct {
	mu sync.Mutex
	of map[string]int
}

// begin counts one more of a person, unless that would be more than most.
func (u *underWay) begin(person string, most int) (end func(), begun bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of[person] >= most {
		return nil, false
	}
	u.of[person]++
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.of[person]--; u.of[person] == 0 {
			delete(u.of, person)
		}
	}, true
}
