package progress

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
)

// A TensorBoard event file is a list of records: the length of the data, a checksum of the length, the data, and a
// checksum of the data. The data is an Event in the encoding of protocol buffers.
const (
	recordHead = 12
	recordTail = 4
	// maxRecord bounds a record that is read; larger ones, images and graphs, hold no scalars.
	maxRecord = 1 << 16
)

// ErrNoRecord says that bytes are not those of a TensorBoard event file.
var ErrNoRecord = errors.New("no TensorBoard record")

// NextRecord returns the data of the first record in text, and the size of the whole record. The data is nil if it is
// too large to be read; the size is 0 if the record is not complete yet.
func NextRecord(text []byte) (data []byte, size int64, err error) {
	if len(text) < recordHead {
		return nil, 0, nil
	}
	length := binary.LittleEndian.Uint64(text)
	if masked(text[:8]) != binary.LittleEndian.Uint32(text[8:]) || length > math.MaxInt64/2 {
		return nil, 0, ErrNoRecord
	}
	size = int64(length) + recordHead + recordTail
	if length > maxRecord {
		return nil, size, nil
	}
	if int64(len(text)) < size {
		return nil, 0, nil
	}
	data = text[recordHead : recordHead+length]
	if masked(data) != binary.LittleEndian.Uint32(text[recordHead+length:]) {
		return nil, 0, ErrNoRecord
	}
	return data, size, nil
}

// masked is the checksum of the format: a CRC-32C, rotated and shifted.
func masked(data []byte) uint32 {
	sum := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// The fields of Event, Summary, Summary.Value and TensorProto that are read.
const (
	eventStep, eventSummary, summaryValue            = 2, 5, 1
	valueTag, valueSimple, valueTensor               = 1, 2, 8
	tensorType, tensorContent, tensorFloats, isFloat = 1, 4, 5, 1
)

// Scalars returns the step and the scalars of an Event.
func Scalars(event []byte) (step int64, scalars map[string]float64) {
	scalars = map[string]float64{}
	fields(event, func(number int, whole uint64, bytes []byte) {
		switch number {
		case eventStep:
			step = int64(whole)
		case eventSummary:
			fields(bytes, func(number int, _ uint64, value []byte) {
				if number != summaryValue {
					return
				}
				if tag, x, ok := scalar(value); ok {
					scalars[tag] = x
				}
			})
		}
	})
	return step, scalars
}

// scalar reads a Summary.Value; false if it is no number of the format.
func scalar(value []byte) (tag string, x float64, ok bool) {
	fields(value, func(number int, whole uint64, bytes []byte) {
		switch number {
		case valueTag:
			tag = string(bytes)
		case valueSimple:
			x, ok = float64(math.Float32frombits(uint32(whole))), true
		case valueTensor:
			x, ok = tensor(bytes)
		}
	})
	return tag, x, ok && tag != ""
}

// tensor reads a TensorProto that holds one float.
func tensor(text []byte) (x float64, ok bool) {
	floats := true
	fields(text, func(number int, whole uint64, bytes []byte) {
		switch number {
		case tensorType:
			floats = whole == isFloat
		case tensorContent, tensorFloats:
			if len(bytes) == 4 {
				whole = uint64(binary.LittleEndian.Uint32(bytes))
			} else if bytes != nil {
				return
			}
			x, ok = float64(math.Float32frombits(uint32(whole))), true
		}
	})
	return x, ok && floats
}

// fields calls with the fields of a message in the encoding of protocol buffers: a number, or bytes. It stops at what
// it cannot read.
func fields(text []byte, with func(number int, whole uint64, bytes []byte)) {
	for len(text) > 0 {
		key, n := binary.Uvarint(text)
		if n <= 0 {
			return
		}
		text = text[n:]
		var whole uint64
		var bytes []byte
		size := 0
		switch key & 7 {
		case 0:
			if whole, size = binary.Uvarint(text); size <= 0 {
				return
			}
		case 1:
			if size = 8; len(text) < size {
				return
			}
			whole = binary.LittleEndian.Uint64(text)
		case 5:
			if size = 4; len(text) < size {
				return
			}
			whole = uint64(binary.LittleEndian.Uint32(text))
		case 2:
			length, n := binary.Uvarint(text)
			if n <= 0 || length > uint64(len(text)-n) {
				return
			}
			size = n + int(length)
			bytes = text[n:size:size]
		default:
			return
		}
		with(int(key>>3&math.MaxInt32), whole, bytes)
		text = text[size:]
	}
}
