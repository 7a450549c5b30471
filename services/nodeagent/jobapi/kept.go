package jobapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/nodeagent/outbox"
)

const (
	// mostAttempts bounds the attempts whose effects are delivered side by side.
	mostAttempts = 64
	// turn is how long an attempt with many effects goes on before the outbox removes those that are stored.
	turn = time.Second
)

// errTurn says that an effect waits for its turn.
var errTurn = errors.New("others of its attempt come first")

// kept is an effect from the outbox, with its place among the results.
type kept struct {
	effect

	place int
}

// DeliverKept stores what the outbox kept, and returns the result of each item. A busy relay takes a tenth of a second
// for each message, so attempts do not wait for each other. The facts of one attempt go one after another: services
// that follow a job drop an epoch that comes behind a later one.
func (r *recorder) DeliverKept(ctx context.Context, items [][]byte) []error {
	results := make([]error, len(items))
	if err := r.bus.Ready(); err != nil {
		return slices.Repeat([]error{err}, len(items))
	}
	attempts := map[string][]kept{}
	for i, data := range items {
		k := kept{place: i}
		if err := json.Unmarshal(data, &k.effect); err != nil {
			results[i] = fmt.Errorf("%w: %w", outbox.ErrUnreadable, err)
			continue
		}
		key := contract.ReportKey(k.Report.Job, k.Report.Attempt)
		attempts[key] = append(attempts[key], k)
	}
	side := pool.New().WithMaxGoroutines(mostAttempts)
	for _, of := range attempts {
		side.Go(func() { r.deliverInOrder(ctx, of, results) })
	}
	side.Wait()
	return results
}

// deliverInOrder stores the facts of one attempt as long as its turn lasts and none fails, and then what their effects
// change in its record, by one write.
func (r *recorder) deliverInOrder(ctx context.Context, all []kept, results []error) {
	var stored []kept
	var failed error
	for began := time.Now(); len(all) > 0; all = all[1:] {
		k := all[0]
		if len(stored) > 0 && time.Since(began) >= turn {
			failed = errTurn
			break
		}
		err := final(bounded(ctx, func(ctx context.Context) error { return r.publishFact(ctx, k.effect) }))
		if errors.Is(err, outbox.ErrUnreadable) {
			results[k.place] = err
			continue
		}
		if failed = err; failed != nil {
			break
		}
		stored = append(stored, k)
	}
	for _, k := range all {
		results[k.place] = failed
	}
	if len(stored) == 0 {
		return
	}
	effects := make([]effect, len(stored))
	for i, k := range stored {
		effects[i] = k.effect
	}
	err := final(bounded(ctx, func(ctx context.Context) error { _, err := r.store(ctx, effects...); return err }))
	for _, k := range stored {
		results[k.place] = err
	}
}

// bounded gives an exchange with the bus the time that it may take.
func bounded(ctx context.Context, exchange func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	return exchange(ctx)
}

// final marks an error that no repetition changes, such as that of a job whose records are gone.
func final(err error) error {
	if errors.Is(err, bus.ErrForeign) {
		return fmt.Errorf("%w: %w", outbox.ErrUnreadable, err)
	}
	return err
}
