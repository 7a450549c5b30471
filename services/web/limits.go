package web

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/services/web/index"
)

const (
	// maxConnections is how many connections a person has at once.
	maxConnections = 256
	// answerTime is how long a person may take to read an answer.
	answerTime = time.Minute
)

// serveBounded serves people who have not said yet what they want.
func serveBounded(ctx context.Context, listener net.Listener, answers http.Handler) error {
	return run.ServePeers(ctx, listener, answers, maxConnections)
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
