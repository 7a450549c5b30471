package busserver

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"time"
	"unicode"

	"github.com/minio/highwayhash"
)

// block is a file in which nats-server keeps messages of a stream: records one behind the other, each with a checksum.
// When the server reads one that is damaged, it drops all records behind it in the same file.
type block struct {
	data []byte
	hash hash.Hash64
}

// The form of a record: its length with a bit for headers, sequence, time, length of the subject, subject, perhaps the
// length of the headers, headers and body, checksum.
const (
	headBytes     = 22
	checksumBytes = 8
	headersBit    = 1 << 31
	recordMost    = 32 << 20
	// sequenceBits are those of a sequence: the others mark what was deleted.
	sequenceBits = 1<<62 - 1
)

func newBlock(stream string, index int, data []byte) (*block, error) {
	key := sha256.Sum256(fmt.Appendf(nil, "%s-%d", stream, index))
	hash, err := highwayhash.New64(key[:])
	if err != nil {
		return nil, fmt.Errorf("make a checksum: %w", err)
	}
	return &block{data, hash}, nil
}

// record is a part of a block.
type record struct {
	from, to int
	sequence uint64
}

// at returns the record at an offset, if there is a whole one.
func (b *block) at(from int) (r record, whole bool) {
	if len(b.data)-from < headBytes+checksumBytes {
		return r, false
	}
	head := b.data[from : from+headBytes]
	length, subject := binary.LittleEndian.Uint32(head), int(binary.LittleEndian.Uint16(head[20:]))
	size, rest := int(length&^headersBit), subject
	if length&headersBit != 0 {
		rest += 4
	}
	if size > recordMost || size > len(b.data)-from || headBytes+rest+checksumBytes > size {
		return r, false
	}
	body := b.data[from+headBytes : from+size-checksumBytes]
	b.hash.Reset()
	for _, part := range [][]byte{head[4:20], body[:subject], body[rest:]} {
		_, _ = b.hash.Write(part) // a hash never fails
	}
	r = record{from, from + size, binary.LittleEndian.Uint64(head[4:]) & sequenceBits}
	return r, bytes.Equal(b.hash.Sum(nil), b.data[r.to-checksumBytes:r.to])
}

// damage is a part of a block that holds no whole record. after and before are the sequences of the records around it,
// 0 without one. subject is that of its first message, as far as it can be read.
type damage struct {
	record
	after, before uint64
	subject       string
}

// damages returns the damaged parts of a block in their order.
func (b *block) damages() (found []damage) {
	last := uint64(0)
	for from := 0; from < len(b.data); {
		r, whole := b.at(from)
		if whole {
			from, last = r.to, max(last, r.sequence)
			continue
		}
		d := damage{record: record{from: from, to: len(b.data)}, after: last, subject: b.subject(from)}
		for at := from + 1; at < len(b.data); at++ {
			if r, whole := b.at(at); whole {
				d.to, d.before = at, r.sequence
				break
			}
		}
		found, from = append(found, d), d.to
	}
	return found
}

// subject returns the subject of what may be a damaged record; empty if it cannot be read.
func (b *block) subject(from int) string {
	if len(b.data)-from < headBytes {
		return ""
	}
	rest := b.data[from+headBytes:]
	size := int(binary.LittleEndian.Uint16(b.data[from+20:]))
	if size > len(rest) || bytes.ContainsFunc(rest[:size], func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsPrint(r) || r == ' ' }) {
		return ""
	}
	return string(rest[:size])
}

// last returns the highest sequence of a whole record, 0 without one.
func (b *block) last() (last uint64) {
	for from := 0; from < len(b.data); {
		r, whole := b.at(from)
		if !whole {
			break
		}
		from, last = r.to, max(last, r.sequence)
	}
	return last
}

// tombstone returns a record that says that the message of a sequence was deleted.
func (b *block) tombstone(sequence uint64, at time.Time) []byte {
	const bit = 1 << 62
	r := make([]byte, headBytes, headBytes+checksumBytes)
	binary.LittleEndian.PutUint32(r, headBytes+checksumBytes)
	binary.LittleEndian.PutUint64(r[4:], sequence|bit)
	binary.LittleEndian.PutUint64(r[12:], uint64(at.UnixNano()))
	b.hash.Reset()
	_, _ = b.hash.Write(r[4:20])
	return b.hash.Sum(r)
}

// without returns the block without its damaged parts.
func (b *block) without(damages []damage) []byte {
	kept, from := make([]byte, 0, len(b.data)), 0
	for _, d := range damages {
		kept, from = append(kept, b.data[from:d.from]...), d.to
	}
	return append(kept, b.data[from:]...)
}
