package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
)

// ErrPartial reports that a bucket does not hold yet all that follows from its stream.
var ErrPartial = errors.New("is being made again from its stream")

// markPartial is the key in the metadata of a bucket's stream that marks it as not whole.
const markPartial = "switchyard-partial"

// installationAge says whether an installation has worked on this bus before.
type installationAge bool

const used installationAge = true

// age returns used if the bus has facts of jobs, the register, or requests about nodes and people.
func (b *Bus) age(ctx context.Context) (installationAge, error) {
	for _, name := range []string{event.StreamJobs, bucketPrefix + string(contract.Jobs), event.StreamNodes, event.StreamPeople} {
		last, err := b.LastSequence(ctx, name)
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return false, err
		}
		if last > 0 {
			return used, nil
		}
	}
	return false, nil
}

// marksOfNew returns the marks of a bucket that is about to be made: it is not whole if there are facts to fold into
// it.
func marksOfNew(k contract.BucketInfo, age installationAge) map[string]string {
	if k.Made == contract.Folded && age == used {
		return map[string]string{markPartial: "new"}
	}
	return nil
}

// FoldAgain has the writer of a bucket fold its stream again. Until then nobody acts on the bucket.
func (b *Bus) FoldAgain(ctx context.Context, bucket string) error {
	return b.Mark(ctx, bucketPrefix+bucket, markPartial, "again")
}

// Folded says that a bucket is whole.
func (b *Bus) Folded(ctx context.Context, bucket string) error {
	return b.Mark(ctx, bucketPrefix+bucket, markPartial, "")
}

// Mark sets a key in the metadata of a stream, or removes it if value is empty.
func (b *Bus) Mark(ctx context.Context, stream, key, value string) error {
	ctx, cancel := exchange(ctx)
	defer cancel()
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("mark %s: %w", stream, err)
	}
	config := s.CachedInfo().Config
	config.Metadata = maps.Clone(config.Metadata)
	if config.Metadata == nil {
		config.Metadata = map[string]string{}
	}
	if config.Metadata[key] == value {
		return nil
	}
	if config.Metadata[key] = value; value == "" {
		delete(config.Metadata, key)
	}
	if _, err = b.js.UpdateStream(ctx, config); err != nil {
		return fmt.Errorf("mark %s: %w", stream, err)
	}
	return nil
}

// Whole returns nil if a bucket is whole, else ErrPartial or ErrMissing.
func (b *Bus) Whole(ctx context.Context, bucket string) error {
	_, _, err := b.whole(ctx, bucket)
	return err
}

// whole returns the revision with which a bucket that is whole was made, and its newest one.
func (b *Bus) whole(ctx context.Context, bucket string) (first, newest uint64, err error) {
	ctx, cancel := exchange(ctx)
	defer cancel()
	s, err := b.js.Stream(ctx, bucketPrefix+bucket)
	if err != nil {
		return 0, 0, fmt.Errorf("open bucket %s: %w", bucket, b.cause(err))
	}
	info := s.CachedInfo()
	if info.Config.Metadata[markPartial] != "" {
		return 0, 0, fmt.Errorf("bucket %s %w", bucket, ErrPartial)
	}
	return info.Config.FirstSeq, info.State.LastSeq, nil
}

// EnsureBucket makes a bucket if it is missing. Made again, it is not whole.
func (b *Bus) EnsureBucket(ctx context.Context, bucket string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*requestTimeout)
	defer cancel()
	there := func() error {
		_, err := b.LastSequence(ctx, bucketPrefix+bucket)
		return err
	}
	return b.asOperator(ctx, func(o *Bus) error { return o.makeBucket(ctx, bucket) }, there)
}

func (b *Bus) makeBucket(ctx context.Context, bucket string) error {
	age, err := b.age(ctx)
	if err != nil {
		return err
	}
	for _, k := range contract.Buckets() {
		if k.Name == bucket {
			return b.ensureBucket(ctx, k, age)
		}
	}
	return fmt.Errorf("ensure bucket %s: %w", bucket, jetstream.ErrBucketNotFound)
}

// madeBy reports whether a stream is that of a bucket that is made again in some way.
func madeBy(stream string, made contract.Made) bool {
	return slices.ContainsFunc(contract.Buckets(), func(k contract.BucketInfo) bool {
		return bucketPrefix+k.Name == stream && k.Made == made
	})
}
