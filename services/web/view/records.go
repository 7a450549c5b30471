package view

import (
	"slices"

	"github.com/switchyard-dl/switchyard/services/web/index"
)

// Records is a part of a list of records.
type Records[T any] struct {
	// Items are in the order of their keys.
	Items []*T `json:"items"`
	// Next is the after of the next page; empty on the last one.
	Next string `json:"next,omitempty"`
}

// List returns the records of a table whose keys follow the query's After, at most Limit.
func List[T any](t *index.Table[T], q Query) Records[T] {
	var keys []string
	for key := range t.All() {
		if key > q.After {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	page := Records[T]{Items: []*T{}}
	if q.Limit > 0 && len(keys) > q.Limit {
		keys = keys[:q.Limit]
		page.Next = keys[q.Limit-1]
	}
	for _, key := range keys {
		page.Items = append(page.Items, t.Get(key))
	}
	return page
}
