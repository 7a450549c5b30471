package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// ErrForeign says that a record is not one of its key: another program than its writer wrote it.
var ErrForeign = errors.New("key and record disagree")

// Reader decodes the records of a bucket. A client of the bus can write anything there, and what services read becomes
// paths and process numbers. So a key must have the form that the table declares, and the record must name it.
type Reader[T any] struct {
	form *regexp.Regexp
	// longest is how many characters each part of a key may have; further parts may be as long as an id. With these
	// bounds in it, the expression would be many times as large, and each service has one for each of its buckets.
	longest []int
}

// Reader makes a Reader. Keys of buckets that are not in the table may have any form.
func (b Bucket[T]) Reader() Reader[T] {
	var own, all []string
	for _, info := range Buckets() {
		if info.Name != string(b) {
			continue
		}
		for _, r := range info.Records {
			all = append(all, r.Key)
			if r.Type == reflect.TypeFor[T]() {
				own = append(own, r.Key)
			}
		}
	}
	if len(own) > 0 {
		all = own
	}
	if len(all) == 0 {
		return Reader[T]{}
	}
	r := Reader[T]{}
	for i, key := range all {
		all[i] = formOf(key)
		for part, bound := range boundsOf(key) {
			if part == len(r.longest) {
				r.longest = append(r.longest, bound)
			}
			r.longest[part] = max(r.longest[part], bound)
		}
	}
	r.form = regexp.MustCompile(`^(?:` + strings.Join(all, "|") + `)$`)
	return r
}

// boundsOf returns how many characters each part of a key of a form may have. Points separate the parts.
func boundsOf(key string) []int {
	const link, hex, longestLink = "\x01", "\x02", 200
	marked := placeholder.ReplaceAllStringFunc(key, func(name string) string {
		switch {
		case name == "<link>":
			return link
		case strings.HasSuffix(name, "in hex>"):
			return hex
		}
		return ""
	})
	var bounds []int
	for part := range strings.SplitSeq(marked, ".") {
		bound := train.MaxIDLength
		switch {
		case strings.Contains(part, hex):
			bound = math.MaxInt
		case strings.Contains(part, link):
			bound = longestLink
		}
		bounds = append(bounds, bound)
	}
	return bounds
}

// placeholder is a part of the form of a key.
var placeholder = regexp.MustCompile(`<[^>]*>`)

// formOf returns the regular expression of the keys of a form.
func formOf(key string) string {
	var form strings.Builder
	for {
		at := placeholder.FindStringIndex(key)
		if at == nil {
			return form.String() + regexp.QuoteMeta(key)
		}
		form.WriteString(regexp.QuoteMeta(key[:at[0]]) + tokenOf(key[at[0]+1:at[1]-1]))
		key = key[at[1]:]
	}
}

// tokenOf returns the regular expression of what stands for a placeholder: an id, unless it is one of these.
func tokenOf(name string) string {
	switch {
	case strings.HasSuffix(name, "in hex"):
		return `[0-9a-f]*`
	case name == "attempt":
		return `[0-9]{1,18}`
	case name == "number": // an instance of a partitioned GPU has two
		return `[0-9]{1,9}(?:\.[0-9]{1,9})?`
	case name == "month":
		return `[0-9]{4}-[0-9]{2}`
	case name == "day", name == "hour":
		return `[0-9]{2}`
	case strings.HasSuffix(name, "with = for ."):
		return `[A-Za-z0-9_=][A-Za-z0-9_=-]*`
	case name == "link":
		return `[A-Za-z0-9_=-]+`
	}
	return `[A-Za-z0-9][A-Za-z0-9_-]*`
}

// Decode decodes the record of a key. It returns ErrForeign if they do not belong to each other.
func (r Reader[T]) Decode(key string, data []byte, into *T) error {
	if raw, is := any(into).(*json.RawMessage); is && json.Valid(data) {
		*raw = data
	} else if err := json.Unmarshal(data, into); err != nil {
		return err
	}
	return r.Check(key, into)
}

// Check returns ErrForeign if a key and a record do not belong to each other.
func (r Reader[T]) Check(key string, record *T) error {
	if r.form != nil && (!r.form.MatchString(key) || r.tooLong(key)) {
		return fmt.Errorf("%w: %.100q has not the form of a key here", ErrForeign, key)
	}
	if named, names := keyOf(record); names && named != key {
		return fmt.Errorf("%w: the record of %.100q says that it is that of %.100q", ErrForeign, key, named)
	}
	return nil
}

func (r Reader[T]) tooLong(key string) bool {
	i := 0
	for part := range strings.SplitSeq(key, ".") {
		bound := train.MaxIDLength
		if i < len(r.longest) {
			bound = r.longest[i]
		}
		if len(part) > bound {
			return true
		}
		i++
	}
	return false
}

// keyOf returns the key that a record names. names is false if records of its type name none.
func keyOf(record any) (key string, names bool) {
	switch r := record.(type) {
	case *train.Job:
		return string(r.ID), true
	case *train.Model:
		return r.Job, true
	case *curve.InterferenceRecord:
		return fmt.Sprintf("d%x.v%x", r.Device, r.Under), true
	case *train.Attempt:
		return string(r.Job), true
	case *train.AttemptReport:
		return ReportKey(r.Job, r.Attempt), true
	case *train.PowerLimit:
		return string(r.Job), true
	case *PowerProfile:
		return string(r.Job), true
	case *train.Tuning:
		return train.TuningKey(r.Node, r.Device), true
	case *TuningRound:
		return train.TuningKey(r.Node, r.Device), true
	case *train.Setting:
		return string(r.Job), true
	case *ExperimentRecord:
		return r.ID, true
	case *Trials:
		return r.ID, true
	}
	return keyOfPlace(record)
}

// keyOfPlace is keyOf for records about people, nodes and networks, and for those of the energy service. A book names
// its node, and not the hour that it may be about.
func keyOfPlace(record any) (key string, names bool) {
	switch r := record.(type) {
	case *train.Node:
		return string(r.ID), true
	case *ExecutorOwner:
		return string(r.Machine), true
	case *access.Person:
		return strings.ReplaceAll(r.Name, ".", "="), true
	case *access.Tenant:
		return strings.ReplaceAll(r.Name, ".", "="), true
	case *train.Paths:
		return string(r.Node), true
	case *train.Link:
		return r.ID, true
	case *train.Account:
		return AccountKey(r.Job), true
	case *train.EnergyProgress:
		return EnergyProgressKey(r.Job), true
	case *Spending:
		return SpendingKey(strings.ReplaceAll(r.Tenant, ".", "=")), true
	case *NodeSeries:
		return SeriesNodeKey(r.Node), true
	}
	return "", false
}
