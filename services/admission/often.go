package admission

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// The users of the bus share one key, and may ask for something as often as one person. Web bounds each person before.

// take takes a request from the bucket of the users of the bus.
func (d *handler) take(at time.Time) (most int, wait time.Duration, taken bool) {
	most = access.RequestsPerMinute
	if bound := d.people.of(d.who.Tenant).Requests; bound != nil {
		most = *bound
	}
	wait, taken = d.rates.Take(bus.Stranger, most, at)
	return most, wait, taken
}

// tooOften says that the users of the bus submit too often.
func (d *handler) tooOften(s submission) []train.Reason {
	if s.role != identity.User {
		return nil
	}
	most, wait, taken := d.take(s.at)
	if taken {
		return nil
	}
	return []train.Reason{{
		Code: tooMany, Message: fmt.Sprintf("%s asks for something more than %d times in a minute", bus.Stranger, most),
		Hint: fmt.Sprintf("submit it again in %.0f s under another id; `switchyard tenant set %s --requests N` changes the bound", math.Ceil(wait.Seconds()), d.who.Tenant),
	}}
}

// tooMany is the reason of what is refused because there was too much of it.
const tooMany = "TooManyRequests"

// inTime returns poison for a request of the users of the bus, other than a submission, if they ask too often. A
// request that was followed before, and comes again, passes.
func (d *handler) inTime(ctx context.Context, id train.JobID, m bus.Message) error {
	if kind, known := event.Find(m.Parsed); !known || !kind.Asked() {
		return nil
	}
	if who, err := m.Asker(); err != nil || who.Role != identity.User {
		return nil //nolint:nilerr // a request without a proof is refused as that
	}
	most, wait, taken := d.take(m.Stored)
	if taken {
		return nil
	}
	e, err := d.record(ctx, id)
	if err == nil && e.Value.LastSequence >= m.Sequence {
		return nil
	}
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return err
	}
	return fmt.Errorf("%w: %s: %s asks for something more than %d times in a minute: ask again in %.0f s", bus.ErrPoison, tooMany, bus.Stranger, most, math.Ceil(wait.Seconds()))
}

// refused returns the sequences in JOBS of the requests that came too often, which are folded no other time either.
func (d *handler) refused(ctx context.Context) (map[uint64]bool, error) {
	sequences := map[uint64]bool{}
	subject := event.Subject{Entity: "poison", ID: consumerName, Fact: event.FactSetAside, Version: 1}
	err := d.bus.Stored(ctx, event.StreamPoison, []string{subject.String()}, time.Time{}, func(m bus.Message) {
		why, err := event.Decode[event.Poisoned](m.Data)
		if err == nil && why.Stream == event.StreamJobs && strings.Contains(why.Reason, ": "+tooMany+": ") {
			sequences[why.Sequence] = true
		}
	})
	return sequences, err
}
