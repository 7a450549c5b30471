package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/switchyard-dl/switchyard/libs/build"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
)

// markContract is the key in the metadata of JOBS that says which versions of facts and records the bus holds, and
// which program has last made its streams. Every role may read it.
const markContract = "switchyard-contract"

// contractForm is the form of its value.
const contractForm = "facts v%d, records v%d, %s"

func markOf(b contract.Build) string {
	return fmt.Sprintf(contractForm, b.Events, b.Records, b.Version)
}

// speaks reads such a value. Streams from before there was one have none.
func speaks(mark string) contract.Build {
	var b contract.Build
	if _, err := fmt.Sscanf(mark, contractForm, &b.Events, &b.Records, &b.Version); err != nil {
		return build.First("before v0.1.0")
	}
	return b
}

// Agree returns an error that says who has to be upgraded unless this program speaks the facts and records that the bus
// holds.
func (b *Bus) Agree(ctx context.Context) error { return b.agree(ctx, differ) }

// differ reports whether two programs differ, build.Newer whether they do so that the first cannot catch up.
func differ(contract.Build, contract.Build) bool { return true }

// agree is Agree for a difference that matters to the caller.
func (b *Bus) agree(ctx context.Context, matters func(theirs, mine contract.Build) bool) error {
	ctx, cancel := exchange(ctx)
	defer cancel()
	jobs, err := b.js.Stream(ctx, event.StreamJobs)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask which versions the bus holds: %w", b.cause(err))
	}
	return b.compare(jobs.CachedInfo().Config.Metadata[markContract], matters)
}

func (b *Bus) compare(mark string, matters func(theirs, mine contract.Build) bool) error {
	mine, theirs := build.This(), speaks(mark)
	if !matters(theirs, mine) {
		return nil
	}
	return build.Agree(mine, theirs, "the bus at "+b.URL())
}
