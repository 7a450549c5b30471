package console

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/audit"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// either asks the service web or, once web has not answered, the bus: a command that waits or follows outlives the
// service.
type either struct {
	web onSocket
	// connect opens the bus; it fails at once if nothing answers there.
	connect func(ctx context.Context) (y Yard, done func(), err error)

	mu   sync.Mutex
	bus  Yard
	done func()
}

// now returns whom to ask.
func (e *either) now() Yard {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.bus != nil {
		return e.bus
	}
	return e.web
}

// fallBack turns to the bus for good, if it answers.
func (e *either) fallBack(ctx context.Context) (Yard, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.bus == nil {
		y, done, err := e.connect(ctx)
		if err != nil {
			return nil, false
		}
		e.bus, e.done = y, done
	}
	return e.bus, true
}

func (e *either) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.web.client.CloseIdleConnections()
	if e.done != nil {
		e.done()
	}
}

// asking asks a question, and asks it again of the bus if web has gone away. A fact has a key: stored twice, it counts
// once.
func asking[T any](ctx context.Context, e *either, ask func(Yard) (T, error)) (T, error) {
	answer, err := ask(e.now())
	if errors.Is(err, errGone) {
		if y, found := e.fallBack(ctx); found {
			return ask(y)
		}
	}
	return answer, err
}

func (e *either) Jobs(ctx context.Context, q view.Query) (view.Page, error) {
	return asking(ctx, e, func(y Yard) (view.Page, error) { return y.Jobs(ctx, q) })
}

func (e *either) Job(ctx context.Context, ref string, unknown int) (view.Detail, error) {
	return asking(ctx, e, func(y Yard) (view.Detail, error) { return y.Job(ctx, ref, unknown) })
}

func (e *either) Find(ctx context.Context, ref string, unknown int) (train.Job, error) {
	return asking(ctx, e, func(y Yard) (train.Job, error) { return y.Find(ctx, ref, unknown) })
}

func (e *either) Standing(ctx context.Context, id train.JobID) (view.Standing, error) {
	return asking(ctx, e, func(y Yard) (view.Standing, error) { return y.Standing(ctx, id) })
}

// Follow keeps trying while neither web nor the bus answers, because the services may start again.
func (e *either) Follow(ctx context.Context, ids []train.JobID, f func(train.Job) bool) error {
	for ctx.Err() == nil {
		_, err := asking(ctx, e, func(y Yard) (struct{}, error) { return struct{}{}, y.Follow(ctx, ids, f) })
		if !errors.Is(err, errGone) {
			return err
		}
		tick.Pause(ctx, awayPause)
	}
	return nil
}

func (e *either) Records(ctx context.Context, ids []train.JobID) ([]*train.Job, error) {
	return asking(ctx, e, func(y Yard) ([]*train.Job, error) { return y.Records(ctx, ids) })
}

func (e *either) Nodes(ctx context.Context) ([]*train.Node, error) {
	return asking(ctx, e, func(y Yard) ([]*train.Node, error) { return y.Nodes(ctx) })
}

func (e *either) Cluster(ctx context.Context) ([]*view.Node, error) {
	return asking(ctx, e, func(y Yard) ([]*view.Node, error) { return y.Cluster(ctx) })
}

func (e *either) Log(ctx context.Context, node train.NodeID, job train.JobID, offset int64) (rpc.LogChunk, error) {
	return asking(ctx, e, func(y Yard) (rpc.LogChunk, error) { return y.Log(ctx, node, job, offset) })
}

func (e *either) Files(ctx context.Context, node train.NodeID, r rpc.FileRequest) (rpc.FileAnswer, error) {
	return asking(ctx, e, func(y Yard) (rpc.FileAnswer, error) { return y.Files(ctx, node, r) })
}

func (e *either) Experiments(ctx context.Context) ([]view.ExperimentLine, error) {
	return asking(ctx, e, func(y Yard) ([]view.ExperimentLine, error) { return y.Experiments(ctx) })
}

func (e *either) Experiment(ctx context.Context, id string, unknown int) (contract.ExperimentRecord, error) {
	return asking(ctx, e, func(y Yard) (contract.ExperimentRecord, error) { return y.Experiment(ctx, id, unknown) })
}

func (e *either) Terminal(ctx context.Context, node train.NodeID, r rpc.TerminalRequest) (Terminal, error) {
	return asking(ctx, e, func(y Yard) (Terminal, error) { return y.Terminal(ctx, node, r) })
}

func (e *either) Rehearse(ctx context.Context, c rpc.Candidate) (rpc.Rehearsal, error) {
	return asking(ctx, e, func(y Yard) (rpc.Rehearsal, error) { return y.Rehearse(ctx, c) })
}

func (e *either) Epochs(ctx context.Context, id train.JobID) (view.Epochs, error) {
	return asking(ctx, e, func(y Yard) (view.Epochs, error) { return y.Epochs(ctx, id) })
}

func (e *either) Groups(ctx context.Context) ([]view.Group, error) {
	return asking(ctx, e, func(y Yard) ([]view.Group, error) { return y.Groups(ctx) })
}

func (e *either) GroundTruth(ctx context.Context) (contract.GroundTruth, error) {
	return asking(ctx, e, func(y Yard) (contract.GroundTruth, error) { return y.GroundTruth(ctx) })
}

func (e *either) Probed(ctx context.Context) (view.Probed, error) {
	return asking(ctx, e, func(y Yard) (view.Probed, error) { return y.Probed(ctx) })
}

func (e *either) Ledger(ctx context.Context, from, to time.Time) (view.Ledger, error) {
	return asking(ctx, e, func(y Yard) (view.Ledger, error) { return y.Ledger(ctx, from, to) })
}

func (e *either) Audit(ctx context.Context, f audit.Filter) ([]contract.AuditEntry, error) {
	return asking(ctx, e, func(y Yard) ([]contract.AuditEntry, error) { return y.Audit(ctx, f) })
}

func (e *either) Users(ctx context.Context) ([]*access.Person, error) {
	return asking(ctx, e, func(y Yard) ([]*access.Person, error) { return y.Users(ctx) })
}

func (e *either) Tenants(ctx context.Context) ([]*access.Tenant, error) {
	return asking(ctx, e, func(y Yard) ([]*access.Tenant, error) { return y.Tenants(ctx) })
}

func (e *either) Publish(ctx context.Context, fact event.Fact) (repeat bool, err error) {
	return asking(ctx, e, func(y Yard) (bool, error) { return y.Publish(ctx, fact) })
}

func (e *either) Upload(ctx context.Context, hash string, archive *os.File) (repeat bool, err error) {
	return asking(ctx, e, func(y Yard) (bool, error) { return y.Upload(ctx, hash, archive) })
}
