package bus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/switchyard-dl/switchyard/libs/contract"
)

// Snapshot describes the snapshot of a stream: its configuration and its state, as the server writes them.
type Snapshot struct {
	Config json.RawMessage `json:"config"`
	State  json.RawMessage `json:"state"`
}

const (
	// snapshotSilence is how long the server may send nothing of a snapshot, or not answer a piece of one.
	snapshotSilence = 30 * time.Second
	// restoreChunk is the size of the pieces in which a snapshot is sent.
	restoreChunk = 512 << 10
)

// Streams returns the names of all streams on the bus, those of buckets and object stores first: records must not be
// newer in a backup than the facts that they follow from.
func (b *Bus) Streams(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*requestTimeout)
	defer cancel()
	list := b.js.StreamNames(ctx)
	var names []string
	for name := range list.Name() {
		names = append(names, name)
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return nil, fmt.Errorf("list streams: %w", b.cause(err))
	}
	fact := func(name string) int {
		if strings.HasPrefix(name, bucketPrefix) || strings.HasPrefix(name, "OBJ_") {
			return 0
		}
		return 1
	}
	slices.SortFunc(names, func(x, y string) int { return cmp.Or(fact(x)-fact(y), strings.Compare(x, y)) })
	return names, nil
}

// Snapshot writes the messages and consumers of a stream to w while the server works. The server leaves out messages
// that are damaged, and does not say so.
func (b *Bus) Snapshot(ctx context.Context, stream string, w io.Writer) (Snapshot, error) {
	s, err := b.snapshot(ctx, stream, w)
	if err != nil {
		return s, fmt.Errorf("take a snapshot of %s: %w", stream, err)
	}
	return s, nil
}

func (b *Bus) snapshot(ctx context.Context, stream string, w io.Writer) (s Snapshot, err error) {
	inbox := b.nc.NewInbox()
	pieces, err := b.nc.SubscribeSync(inbox)
	if err != nil {
		return s, err
	}
	defer func() { _ = pieces.Unsubscribe() }()
	request := map[string]any{"deliver_subject": inbox}
	if err := b.api(ctx, "STREAM.SNAPSHOT."+stream, request, &s); err != nil {
		return s, err
	}
	for {
		m, err := nextPiece(ctx, pieces)
		if err != nil {
			return s, b.cause(err)
		}
		if len(m.Data) == 0 {
			return s, endOfSnapshot(m)
		}
		if _, err := w.Write(m.Data); err != nil {
			return s, err
		}
		if m.Reply != "" {
			if err := m.Respond(nil); err != nil {
				return s, err
			}
		}
	}
}

// Deleted returns the first sequence of a stream, and those behind it that were deleted.
func (b *Bus) Deleted(ctx context.Context, stream string) (first uint64, deleted []uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotSilence)
	defer cancel()
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return 0, nil, fmt.Errorf("open stream %s: %w", stream, b.cause(err))
	}
	info, err := s.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return 0, nil, fmt.Errorf("look at stream %s: %w", stream, b.cause(err))
	}
	return info.State.FirstSeq, info.State.Deleted, nil
}

func nextPiece(ctx context.Context, pieces *nats.Subscription) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotSilence)
	defer cancel()
	return pieces.NextMsgWithContext(ctx)
}

// endOfSnapshot reads the last message, which has a status if anything went wrong.
func endOfSnapshot(m *nats.Msg) error {
	if status := m.Header.Get("Status"); status != "" && status != "204" {
		return fmt.Errorf("the server ended it: %s %s", status, m.Header.Get("Description"))
	}
	return nil
}

// Restore makes a stream from a snapshot. It must not exist. marks are added to its metadata.
func (b *Bus) Restore(ctx context.Context, stream string, s Snapshot, marks map[string]string, r io.Reader) error {
	config, err := marked(s.Config, marks)
	if err != nil {
		return fmt.Errorf("restore %s: %w", stream, err)
	}
	var to struct {
		DeliverSubject string `json:"deliver_subject"`
	}
	if err := b.api(ctx, "STREAM.RESTORE."+stream, map[string]any{"config": config, "state": s.State}, &to); err != nil {
		return fmt.Errorf("restore %s: %w", stream, err)
	}
	chunk := make([]byte, restoreChunk)
	for {
		n, err := io.ReadFull(r, chunk)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("restore %s: %w", stream, err)
		}
		last := err != nil
		if n > 0 {
			if err := b.sendPiece(ctx, to.DeliverSubject, chunk[:n]); err != nil {
				return fmt.Errorf("restore %s: %w", stream, err)
			}
		}
		if !last {
			continue
		}
		if err := b.sendPiece(ctx, to.DeliverSubject, nil); err != nil {
			return fmt.Errorf("restore %s: %w", stream, err)
		}
		return nil
	}
}

// marked returns a configuration with marks in its metadata.
func marked(config json.RawMessage, marks map[string]string) (json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(config, &all); err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	metadata := map[string]string{}
	if had := all["metadata"]; had != nil {
		if err := json.Unmarshal(had, &metadata); err != nil {
			return nil, fmt.Errorf("read the metadata: %w", err)
		}
	}
	maps.Copy(metadata, marks)
	var err error
	if all["metadata"], err = json.Marshal(metadata); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

func (b *Bus) sendPiece(ctx context.Context, subject string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, snapshotSilence)
	defer cancel()
	answer, err := b.nc.RequestWithContext(ctx, subject, data)
	if err != nil {
		return b.cause(err)
	}
	return apiError(answer.Data)
}

// api makes a request to the server's API of streams that the client library has no function for.
func (b *Bus) api(ctx context.Context, subject string, request, answer any) error {
	data, err := json.Marshal(request)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, snapshotSilence)
	defer cancel()
	m, err := b.nc.RequestWithContext(ctx, "$JS.API."+subject, data)
	if err != nil {
		return b.cause(err)
	}
	if err := apiError(m.Data); err != nil {
		return err
	}
	return json.Unmarshal(m.Data, answer)
}

func apiError(answer []byte) error {
	if len(answer) == 0 {
		return nil
	}
	var failed struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(answer, &failed); err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	if failed.Error != nil {
		return failed.Error
	}
	return nil
}

// MarksOfRestored are the marks of what comes back from a snapshot taken at an earlier time: what is lost since is
// known, and the register follows from facts that are newer than its snapshot.
func MarksOfRestored(stream string, at time.Time) map[string]string {
	marks := map[string]string{markRepaired: at.UTC().Format(time.RFC3339Nano)}
	if madeBy(stream, contract.Folded) {
		marks[markPartial] = "restored"
	}
	return marks
}

// PutBack writes a key of a bucket as it was, if the bucket has none of that name.
func (b *Bus) PutBack(ctx context.Context, bucket, key string, data []byte) (put bool, err error) {
	ctx, cancel := exchange(ctx)
	defer cancel()
	kv, err := b.js.KeyValue(ctx, bucket)
	if err != nil {
		return false, fmt.Errorf("open bucket %s: %w", bucket, b.cause(err))
	}
	_, err = kv.Create(ctx, key, data)
	if errors.Is(err, jetstream.ErrKeyExists) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("write %s/%s: %w", bucket, key, b.cause(err))
	}
	return true, nil
}

// Keys returns the keys of a bucket that have a value; none if there is no such bucket.
func (b *Bus) Keys(ctx context.Context, bucket string) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotSilence)
	defer cancel()
	kv, err := b.js.KeyValue(ctx, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", bucket, b.cause(err))
	}
	list, err := kv.ListKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the keys of %s: %w", bucket, b.cause(err))
	}
	keys := map[string]bool{}
	for key := range list.Keys() {
		keys[key] = true
	}
	return keys, b.cause(ctx.Err())
}

// Delete removes a stream with all that it has.
func (b *Bus) Delete(ctx context.Context, stream string) error {
	ctx, cancel := exchange(ctx)
	defer cancel()
	if err := b.js.DeleteStream(ctx, stream); err != nil {
		return fmt.Errorf("delete stream %s: %w", stream, b.cause(err))
	}
	return nil
}
