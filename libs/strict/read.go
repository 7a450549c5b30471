package strict

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// The methods below read values by hand, where a struct cannot say what is wanted. A nil node is a missing key, which
// reads as zero. field is the path of the node.

// Entries returns the keys of an object in the order of the file, without repeated ones.
func (r *Reader) Entries(n *Node, field string) []*Entry {
	if n == nil || n.Kind == Reported {
		return nil
	}
	if n.Kind != Object {
		r.AddAt(n.Position, CodeType, field, "", "want an object, found %v", n)
		return nil
	}
	list := make([]*Entry, 0, len(n.Entries))
	twice := duplicates(n.Entries, false)
	for i := range n.Entries {
		e := &n.Entries[i]
		if _, again := twice[i]; again {
			r.AddAt(e.Position, CodeDuplicate, Join(field, e.Key), "keep one of them", "given twice")
			continue
		}
		list = append(list, e)
	}
	return list
}

// Object returns the values of an object by key; all keys must be known.
func (r *Reader) Object(n *Node, field string, known ...string) map[string]*Node {
	values := map[string]*Node{}
	for _, e := range r.Entries(n, field) {
		if !slices.Contains(known, e.Key) {
			r.AddAt(e.Position, CodeUnknown, Join(field, e.Key), Near(e.Key, known), "no such field")
			continue
		}
		values[e.Key] = &e.Value
	}
	return values
}

// Items returns the values of a list.
func (r *Reader) Items(n *Node, field string) []*Node {
	if n == nil || n.Kind == Reported {
		return nil
	}
	if n.Kind != List {
		r.AddAt(n.Position, CodeType, field, "", "want a list, found %v", n)
		return nil
	}
	list := make([]*Node, len(n.Items))
	for i := range n.Items {
		list[i] = &n.Items[i]
	}
	return list
}

// Scalar reads a text, or a number or boolean as the file spells it.
func (r *Reader) Scalar(n *Node, field string) string {
	switch {
	case n == nil || n.Kind == Reported:
		return ""
	case !n.Scalar():
		r.AddAt(n.Position, CodeType, field, "", "want text, found %v", n)
		return ""
	}
	return n.Written()
}

// Number reads a finite number.
func (r *Reader) Number(n *Node, field string) float64 {
	if n == nil || n.Kind == Reported {
		return 0
	}
	r.push(field, -1)
	defer r.pop()
	f, _ := r.float(n)
	return f
}

// Whole reads a whole number of at least some size, and of at most 2^31-1.
func (r *Reader) Whole(n *Node, field string, least int) int {
	if n == nil {
		return 0
	}
	before := r.Count()
	x := r.Number(n, field)
	if r.Count() == before && n.Kind != Reported && (x != math.Trunc(x) || x < float64(least) || x > math.MaxInt32) {
		r.AddAt(n.Position, CodeRange, field, "", "want a whole number of at least %d, found %v", least, n)
		return 0
	}
	return int(x)
}

// OneOf reads one of the known words.
func OneOf[T ~string](r *Reader, n *Node, field string, otherwise T, known []T) T {
	if n == nil {
		return otherwise
	}
	before := r.Count()
	word := T(r.Scalar(n, field))
	if !slices.Contains(known, word) && r.Count() == before {
		words := make([]string, len(known))
		for i, k := range known {
			words[i] = string(k)
		}
		r.Add(n, field, Near(string(word), words), "want %s; found %v", strings.Join(words, ", "), n)
	}
	return word
}

// Item names a position of a list.
func Item(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }
