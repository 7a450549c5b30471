package bus

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"weak"
)

// Records lets the services of one process share the records that most of them keep: equal bytes are decoded once, and
// all readers get the same value. Nobody may change it. Records itself keeps no value alive: what no service holds any
// more is forgotten.
type Records struct {
	mu     sync.Mutex
	values map[recordKey]any // weak pointers
	// newest is the last decoded value of each type, as a weak pointer. The next value shares the parts that are equal.
	newest map[reflect.Type]any
}

// recordKey is a type and the sum of what was decoded as that.
type recordKey struct {
	of  reflect.Type
	sum [sha256.Size]byte
}

// NewRecords makes an empty set.
func NewRecords() *Records {
	return &Records{values: map[recordKey]any{}, newest: map[reflect.Type]any{}}
}

// checkRecords is set by the linker in programs for tests: a program ends if one of its services has changed a value
// that others share.
var checkRecords string //nolint:gochecknoglobals // the linker sets no other

// Decode returns the value of encoded bytes: the same as long as anybody in the process holds it. It must not be
// changed.
func Decode[T any](b *Bus, data []byte) (*T, error) {
	r, key := b.records, recordKey{reflect.TypeFor[T](), sha256.Sum256(data)}
	r.mu.Lock()
	defer r.mu.Unlock() // while decoding, too: others wait for the same bytes
	if known, ok := r.values[key].(weak.Pointer[T]); ok {
		if value := known.Value(); value != nil {
			if checkRecords != "" {
				if err := unchanged(value, data); err != nil {
					panic(err)
				}
			}
			return value, nil
		}
	}
	value := new(T)
	if err := json.Unmarshal(data, value); err != nil {
		return nil, fmt.Errorf("decode a %s: %w", key.of, err)
	}
	if record, ok := any(value).(interface{ Share(before *T) }); ok {
		before, _ := r.newest[key.of].(weak.Pointer[T])
		record.Share(before.Value())
	}
	mine := weak.Make(value)
	r.values[key], r.newest[key.of] = mine, mine
	runtime.AddCleanup(value, func(key recordKey) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.values[key] == any(mine) { // else the same bytes were read again
			delete(r.values, key)
		}
	}, key)
	return value, nil
}

// errChanged reports that a reader has changed what others share.
var errChanged = errors.New("a shared record was changed")

// unchanged compares a value with the bytes that it was decoded from.
func unchanged[T any](value *T, data []byte) error {
	fresh := new(T)
	if err := json.Unmarshal(data, fresh); err != nil || !reflect.DeepEqual(value, fresh) {
		return fmt.Errorf("%w: it is %+v, and was %s", errChanged, *value, data)
	}
	return nil
}
