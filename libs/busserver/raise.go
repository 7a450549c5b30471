package busserver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
)

// raise lets each stream that has lost its newest messages go on after them, before a server opens it: new messages
// would get their sequences, and services that have handled those would take the new ones for old. newest are the
// sequences that were seen, by stream. The register says which fact it has folded last, and the consumers of a stream
// which of its messages they were given: a service may be at work on one that no record speaks of yet.
func raise(dir string, newest map[string]uint64, log *slog.Logger) ([]Cut, error) {
	newest = maps.Clone(newest)
	if newest == nil {
		newest = map[string]uint64{}
	}
	folded, err := newestFolded(dir)
	if err != nil {
		return nil, err
	}
	newest[event.StreamJobs] = max(newest[event.StreamJobs], folded)
	for _, s := range event.Streams() {
		if !s.DropOld {
			newest[s.Name] = max(newest[s.Name], newestDelivered(dir, s.Name))
		}
	}
	var cuts []Cut
	for _, stream := range slices.Sorted(maps.Keys(newest)) {
		paths, err := blocksOf(dir, stream)
		if err != nil || len(paths) == 0 {
			continue // it was never made, or is missing as a whole
		}
		last, err := lastOf(stream, paths)
		if err != nil {
			return nil, err
		}
		if last >= newest[stream] {
			continue
		}
		if err := endAt(stream, paths[len(paths)-1], newest[stream]); err != nil {
			return nil, fmt.Errorf("let %s go on after %d: %w", stream, newest[stream], err)
		}
		cut := Cut{stream, fmt.Sprintf("ended at %d, but had %d: its newest messages are lost", last, newest[stream])}
		log.Error("a stream has lost its newest messages, and goes on after them", "stream", stream, "cause", cut.Words)
		cuts = append(cuts, cut)
	}
	return cuts, nil
}

// newestDelivered returns the newest sequence that a durable consumer of a stream was given, 0 if none says so. A file
// that cannot be read says nothing: the server makes it again.
func newestDelivered(dir, stream string) (newest uint64) {
	paths, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", stream, "obs", "*", "o.dat"))
	if err != nil {
		return 0
	}
	for _, path := range paths {
		if data, err := os.ReadFile(path); err == nil {
			newest = max(newest, delivered(data))
		}
	}
	return newest
}

// The form of a consumer's file: two bytes, then the pairs of numbers (of deliveries and of the stream) up to which all
// is acknowledged and up to which messages were delivered, each as a varint. It has no checksum.
const (
	consumerMagic   = 22
	consumerVersion = 2
	// unacknowledgedMost is far above what any consumer has under way: a file that says more is damaged.
	unacknowledgedMost = 1 << 20
)

// delivered returns the sequence up to which a consumer was given messages, 0 if its file is damaged or of another
// form.
func delivered(file []byte) uint64 {
	if len(file) < 2 || file[0] != consumerMagic || file[1] != consumerVersion {
		return 0
	}
	var numbers [4]uint64
	rest := file[2:]
	for i := range numbers {
		n, read := binary.Uvarint(rest)
		if read <= 0 {
			return 0
		}
		numbers[i], rest = n, rest[read:]
	}
	acknowledged, sequence := numbers[1], numbers[3]
	if sequence < acknowledged || sequence-acknowledged > unacknowledgedMost {
		return 0
	}
	return sequence
}

// blocksOf returns the files of a stream, the newest last.
func blocksOf(dir, stream string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", stream, "msgs", "*.blk"))
	slices.SortFunc(paths, func(x, y string) int { return indexOf(x) - indexOf(y) })
	return paths, err
}

// lastOf returns the newest sequence in the files of a stream.
func lastOf(stream string, paths []string) (uint64, error) {
	for _, path := range slices.Backward(paths) {
		data, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		b, err := newBlock(stream, indexOf(path), data)
		if err != nil {
			return 0, err
		}
		if last := b.last(); last > 0 { // the newest may be empty
			return last, nil
		}
	}
	return 0, nil
}

// endAt lets a stream whose newest block this is go on after a sequence, as the server itself does: another block says
// that the message of that sequence was deleted.
func endAt(stream, newest string, sequence uint64) error {
	index := indexOf(newest) + 1
	b, err := newBlock(stream, index, nil)
	if err != nil {
		return err
	}
	return replaceBlock(filepath.Join(filepath.Dir(newest), fmt.Sprintf("%d.blk", index)), b.tombstone(sequence, time.Now()))
}

// newestFolded returns the sequence of the newest fact of jobs that the register speaks of.
func newestFolded(dir string) (newest uint64, err error) {
	sequence := regexp.MustCompile(`"last_sequence":(\d+)`)
	paths, err := blocksOf(dir, "KV_"+string(contract.Jobs))
	if err != nil {
		return 0, err
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		b, err := newBlock("KV_"+string(contract.Jobs), indexOf(path), data)
		if err != nil {
			return 0, err
		}
		for from := 0; from < len(data); {
			r, whole := b.at(from)
			if !whole {
				break
			}
			if found := sequence.FindSubmatch(data[r.from:r.to]); found != nil {
				n, _ := strconv.ParseUint(string(found[1]), 10, 64)
				newest = max(newest, n)
			}
			from = r.to
		}
	}
	return newest, nil
}
