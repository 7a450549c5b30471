package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/register"
)

// openSeal reads the key of signatures. At the very first start it makes one, and signs what an earlier version has
// admitted. This happens once: the key is kept after the last record was signed, and with it the newest fact that needs
// no signature.
func openSeal(ctx context.Context, keys identity.Keys, b *bus.Bus, jobs *bus.KV[train.Job], log *slog.Logger) (*identity.Seal, error) {
	seal, err := keys.Seal()
	if err == nil {
		return seal, seal.Publish(keys)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	since, err := b.LastSequence(ctx, event.StreamJobs)
	if err != nil {
		return nil, err
	}
	if seal, err = identity.NewSeal(since); err != nil {
		return nil, err
	}
	entries, err := jobs.Partly().List(ctx)
	if err != nil {
		return nil, err
	}
	signed := 0
	for _, e := range entries {
		if e.Value.AdmittedAt.IsZero() {
			continue
		}
		if e.Value.Seal, err = seal.Sign(e.Value); err != nil {
			return nil, err
		}
		if _, err := jobs.Swap(ctx, e.Key, e.Value, e.Revision); err != nil {
			return nil, fmt.Errorf("sign what was admitted before: %w", err)
		}
		signed++
	}
	if signed > 0 {
		log.Info("signed what was admitted before there was a key", "jobs", signed)
	}
	return seal, seal.Keep(keys)
}

// foldSealed folds a fact and signs what it changes of the spec or the life, if it was signed before: a batch size that
// was tuned, the memory that a job turned out to need, an edit, a resumption. A fact of admission brings its own
// signature, unless it is older than the key.
func (d *handler) foldSealed(job train.Job, f register.Fact) (train.Job, error) {
	next, err := register.Fold(job, f)
	if err != nil || d.seal == nil {
		return next, err
	}
	old := f.Name == event.FactAdmitted && len(next.Seal) == 0 && f.Sequence <= d.seal.Since
	changed := next.Resumed != job.Resumed || !reflect.DeepEqual(next.Spec, job.Spec)
	if old || changed && f.Name != event.FactAdmitted && d.seal.Check(job) == nil {
		next.Seal, err = d.seal.Sign(next)
	}
	return next, err
}
