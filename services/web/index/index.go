// Package index is what the door for people knows: the newest records of jobs, nodes, models and attempts, the newest
// plan and the newest power of each node, as a fold of what was read of the bus. It decides nothing; package view says
// what of it a person sees.
package index

import (
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// These are not buckets. They hold the newest message of each subject under the id in the subject, with its sequence as
// the revision: the plan under PlanKey, and what was last measured on each node.
const (
	Plan  contract.Bucket[train.Plan]     = "plan"
	Power contract.Bucket[event.Measured] = "power"
)

// PlanKey is the one key of Plan.
const PlanKey = "main"

// Index holds the newest records, each decoded once. What was measured changes each second on each node, and is decoded
// when it is asked for.
type Index struct {
	Jobs     *Table[train.Job]
	Nodes    *Table[train.Node]
	Models   *Table[train.Model]
	Attempts *Table[train.Attempt]
	Reports  *Table[train.AttemptReport]
	Accounts *Table[train.Account]
	Courses  *Table[train.EnergyProgress]
	Met      *Table[curve.InterferenceRecord]
	Tunings  *Table[train.Tuning]
	Plans    *Table[train.Plan]
	// Conditions and Eligibility are what keeps jobs off nodes.
	Conditions  *Table[train.NodeCondition]
	Eligibility *Table[train.Eligibility]
	Power       *Table[event.Measured]
	// Experiments says which there are, and which jobs are their trials.
	Experiments *Table[contract.Trials]
	// Users and Tenants are by the keys of their names, and so is what tenants with a quota of energy have used.
	Users     *Table[access.Person]
	Tenants   *Table[access.Tenant]
	Spendings *Table[contract.Spending]
}

// New makes an empty index.
func New() *Index {
	return &Index{
		Jobs: newTable(contract.Jobs, ""), Nodes: newTable(contract.Nodes, ""), Models: newTable(contract.Models, ""), Attempts: newTable(contract.Attempts, ""),
		Courses: newTable(contract.EnergyProgress, contract.EnergyProgressKey("")), Met: newTable(contract.Interference, ""), Reports: newTable(contract.Reports, ""), Accounts: newTable(contract.Accounts, contract.AccountPrefix), Tunings: newTable(contract.Tunings, ""),
		Conditions: newTable(contract.Conditions, ""), Eligibility: newTable(contract.Eligibility, ""),
		Plans:       newest(Plan, event.StreamPlans, event.PlanSubject()),
		Power:       newest(Power, event.StreamSamples, event.Subject{Entity: "energy", ID: "*", Fact: event.FactMeasured, Version: 1}).decodedLate(),
		Experiments: newTable(contract.Bucket[contract.Trials](contract.Experiments), ""),
		Users:       newTable(contract.Users, ""), Tenants: newTable(contract.Tenants, ""), Spendings: newTable(contract.Spendings, contract.SpendingKey("")),
	}
}

// Source is a part of a bucket that an index is made of.
type Source interface {
	// Bucket names the bucket, Pattern the keys. If the part is made of messages, Stream is where they are, and Pattern
	// is about their subjects.
	Bucket() string
	Stream() string
	Pattern() string
	// Put takes over one key: its newest value, or none if the key was deleted. It reports whether anything changed:
	// an older revision, or the same again, changes nothing. A value that cannot be read counts as none.
	Put(key string, revision uint64, value []byte) (changed bool, err error)
	// Listed forgets the keys that were not put since the list before last. It returns them. It is called when a
	// whole list has been put, which shows deletions that were missed.
	Listed() []string
}

// Sources are all parts.
func (x *Index) Sources() []Source {
	return []Source{x.Jobs, x.Nodes, x.Models, x.Attempts, x.Reports, x.Accounts, x.Courses, x.Met, x.Tunings, x.Plans, x.Experiments, x.Conditions, x.Eligibility, x.Power, x.Users, x.Tenants, x.Spendings}
}

// Buckets returns the parts of each bucket.
func (x *Index) Buckets() map[string][]Source {
	parts := map[string][]Source{}
	for _, s := range x.Sources() {
		parts[s.Bucket()] = append(parts[s.Bucket()], s)
	}
	return parts
}

// Plan returns the newest plan. It is empty before the first decision.
func (x *Index) Plan() *train.Plan {
	if p := x.Plans.Get(PlanKey); p != nil {
		return p
	}
	return &train.Plan{Allocations: []train.Allocation{}}
}

// Table holds the records of one type.
type Table[T any] struct {
	bucket, prefix  string
	reader          contract.Reader[T]
	stream, pattern string
	entries         map[string]entry[T]
	round           int
	// late says that values are decoded each time that they are asked for, and not when they are put.
	late bool
	// Decode reads a value, which is never changed.
	Decode func(data []byte) (*T, error)
}

// entry is a record. It has no value once it is deleted: an older value that comes later must not bring it back.
type entry[T any] struct {
	value *T
	// data is the value of a table that decodes late.
	data     []byte
	revision uint64
	round    int
}

func (e entry[T]) exists() bool { return e.value != nil || len(e.data) > 0 }

func newTable[T any](bucket contract.Bucket[T], prefix string) *Table[T] {
	return &Table[T]{
		bucket: string(bucket), prefix: prefix, reader: bucket.Reader(), pattern: prefix + ">", entries: map[string]entry[T]{},
		Decode: func(data []byte) (*T, error) {
			value := new(T)
			return value, json.Unmarshal(data, value)
		},
	}
}

// newest makes the table of the newest messages of subjects.
func newest[T any](name contract.Bucket[T], stream string, subjects event.Subject) *Table[T] {
	t := newTable(name, "")
	t.stream, t.pattern = stream, subjects.String()
	return t
}

// decodedLate has a table decode its values when they are asked for.
func (t *Table[T]) decodedLate() *Table[T] {
	t.late = true
	return t
}

// Bucket implements Source.
func (t *Table[T]) Bucket() string { return t.bucket }

// Stream implements Source.
func (t *Table[T]) Stream() string { return t.stream }

// Pattern implements Source.
func (t *Table[T]) Pattern() string { return t.pattern }

// Get returns the record of a key, or nil. It must not be changed.
func (t *Table[T]) Get(key string) *T { return t.valueOf(t.prefix + key) }

// All returns the records by key, in no order.
func (t *Table[T]) All() iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		for key := range t.entries {
			if value := t.valueOf(key); value != nil && !yield(strings.TrimPrefix(key, t.prefix), value) {
				return
			}
		}
	}
}

// valueOf returns the value of a whole key, or nil.
func (t *Table[T]) valueOf(key string) *T {
	e := t.entries[key]
	if e.value != nil || len(e.data) == 0 {
		return e.value
	}
	value, err := t.read(key, e.data)
	if err != nil {
		return nil
	}
	return value
}

// read decodes the value of a key.
func (t *Table[T]) read(key string, data []byte) (*T, error) {
	value, err := t.Decode(data)
	if err == nil {
		err = t.reader.Check(key, value)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", t.bucket, key, err)
	}
	return value, nil
}

// Put implements Source.
func (t *Table[T]) Put(key string, revision uint64, value []byte) (changed bool, err error) {
	if !strings.HasPrefix(key, t.prefix) {
		return false, nil
	}
	old, known := t.entries[key]
	if known && old.revision >= revision {
		old.round = t.round
		t.entries[key] = old
		return false, nil
	}
	e := entry[T]{revision: revision, round: t.round}
	switch {
	case len(value) == 0:
	case t.late:
		e.data = value
	default:
		e.value, err = t.read(key, value)
	}
	t.entries[key] = e
	return e.exists() || old.exists(), err
}

// Listed implements Source.
func (t *Table[T]) Listed() []string {
	var gone []string
	for key, e := range t.entries {
		if e.round == t.round {
			continue
		}
		delete(t.entries, key)
		if e.exists() {
			gone = append(gone, key)
		}
	}
	t.round++
	return gone
}
