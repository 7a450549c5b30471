package strict

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kind is what a value is.
type Kind uint8

// The kinds. The problem of a Reported value is known already: its reader stays silent.
const (
	Reported Kind = iota
	Null
	Bool
	Number
	Text
	List
	Object
)

// Position is a place in a text, from 1 on.
type Position struct{ Line, Column int32 }

// Node is one value as it was written: keys in their order, numbers as text.
type Node struct {
	Position
	Kind Kind
	// Text is the value of a text, number or boolean; numbers and booleans are spelt as in JSON.
	Text string
	// raw is the spelling of the file where that differs.
	raw     string
	Entries []Entry
	Items   []Node
}

// Entry is a key of an object with its value.
type Entry struct {
	Position
	Key   string
	Value Node
}

func (n *Node) position() Position {
	if n == nil {
		return Position{}
	}
	return n.Position
}

// Written is a scalar as the file spells it.
func (n *Node) Written() string {
	if n.raw != "" {
		return n.raw
	}
	return n.Text
}

// Scalar reports whether the value is a text, number or boolean.
func (n *Node) Scalar() bool { return n.Kind == Text || n.Kind == Number || n.Kind == Bool }

// String names the kind of the value, for a message.
func (n *Node) String() string {
	switch n.Kind {
	case Null:
		return "null"
	case Text:
		return fmt.Sprintf("%.80q", n.Written())
	case Bool, Number:
		return fmt.Sprintf("%.80s", n.Written())
	case List:
		return "a list"
	case Object:
		return "an object"
	default:
		return "something else"
	}
}

// Get returns the value of a key, nil if the object lacks it.
func (n *Node) Get(key string) *Node {
	if i := slices.IndexFunc(n.Entries, func(e Entry) bool { return e.Key == key }); i >= 0 {
		return &n.Entries[i].Value
	}
	return nil
}

// Find returns the node of a field such as a.b[2], or the nearest node around it.
func (n *Node) Find(field string) *Node {
	for part := range strings.FieldsFuncSeq(field, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		var next *Node
		if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(n.Items) {
			next = &n.Items[i]
		} else {
			next = n.Get(part)
		}
		if next == nil {
			return n
		}
		n = next
	}
	return n
}

// appendJSON writes the value as JSON.
func (n *Node) appendJSON(b []byte) []byte {
	text := func(s string) []byte {
		quoted, _ := json.Marshal(s) // a text can always be written
		return quoted
	}
	switch n.Kind {
	case Text:
		return append(b, text(n.Written())...)
	case Bool, Number:
		return append(b, n.Text...)
	case List:
		b = append(b, '[')
		for i := range n.Items {
			if i > 0 {
				b = append(b, ',')
			}
			b = n.Items[i].appendJSON(b)
		}
		return append(b, ']')
	case Object:
		b = append(b, '{')
		for i := range n.Entries {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(b, text(n.Entries[i].Key)...), ':')
			b = n.Entries[i].Value.appendJSON(b)
		}
		return append(b, '}')
	default:
		return append(b, "null"...)
	}
}
