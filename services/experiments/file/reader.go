package file

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// Problem is something wrong with a file.
type Problem struct {
	Line    int    `json:"line"` // 0: of the file as a whole
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Problems are all that is wrong with a file, by line.
type Problems []Problem

// Error has a line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, x := range p {
		text := x.Message
		if x.Field != "" {
			text = x.Field + ": " + text
		}
		if x.Line > 0 {
			text = fmt.Sprintf("line %d: %s", x.Line, text)
		}
		if x.Hint != "" {
			text += " (" + x.Hint + ")"
		}
		lines[i] = text
	}
	return strings.Join(lines, "\n")
}

// reader reads the nodes of a document and enters what is wrong with them.
type reader struct{ problems Problems }

func (r *reader) add(n *yaml.Node, field, hint, format string, args ...any) {
	line := 0
	if n != nil {
		line = n.Line
	}
	r.problems = append(r.problems, Problem{line, field, fmt.Sprintf(format, args...), hint})
}

// err is nil where nothing is wrong.
func (r *reader) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(r.problems, func(x, y Problem) int { return cmp.Compare(x.Line, y.Line) })
	return r.problems
}

// maxFile bounds a file: an experiment becomes one message.
const maxFile = 256 << 10

// document parses YAML, of which JSON is a part. It gives nil where it cannot.
func (r *reader) document(text []byte) *yaml.Node {
	if len(text) > maxFile {
		r.add(nil, "", "", "want at most %d bytes, found %d", maxFile, len(text))
		return nil
	}
	if json.Valid(text) { // where tabs are white space, which YAML does not allow everywhere
		text = []byte(strings.ReplaceAll(string(text), "\t", " "))
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		r.yamlError(err)
		return nil
	}
	if len(doc.Content) == 0 {
		r.add(nil, "", "", "the file is empty")
		return nil
	}
	if n := alias(&doc); n != nil {
		r.add(n, "", "write it out", "references (*%s) are not read", n.Value)
		return nil
	}
	return doc.Content[0]
}

// yamlError enters what the YAML parser says, which knows lines.
func (r *reader) yamlError(err error) {
	messages := []string{err.Error()}
	if types, ok := errors.AsType[*yaml.TypeError](err); ok {
		messages = types.Errors
	}
	for _, m := range messages {
		n := &yaml.Node{}
		m = strings.TrimPrefix(m, "yaml: ")
		if rest, found := strings.CutPrefix(m, "line "); found {
			if number, words, ok := strings.Cut(rest, ": "); ok {
				n.Line, _ = strconv.Atoi(number)
				m = words
			}
		}
		r.add(n, "", "", "%s", m)
	}
}

// alias finds a reference: those could make a small file endless.
func alias(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n
	}
	for _, c := range n.Content {
		if found := alias(c); found != nil {
			return found
		}
	}
	return nil
}

// kind says what a node is, for a person.
func kind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "an object"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "nothing"
	}
	return fmt.Sprintf("%.80q", n.Value)
}

// entry is a key of an object with its value.
type entry struct{ key, value *yaml.Node }

// entries are those of an object, in order, without those given twice.
func (r *reader) entries(n *yaml.Node, field string) []entry {
	if n == nil {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		r.add(n, field, "", "want an object, found %s", kind(n))
		return nil
	}
	var list []entry
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if slices.ContainsFunc(list, func(e entry) bool { return e.key.Value == key.Value }) {
			r.add(key, joined(field, key.Value), "keep one of them", "given twice")
			continue
		}
		list = append(list, entry{key, n.Content[i+1]})
	}
	return list
}

// object gives the values of an object by key, all of which must be known.
func (r *reader) object(n *yaml.Node, field string, known ...string) map[string]*yaml.Node {
	values := map[string]*yaml.Node{}
	for _, e := range r.entries(n, field) {
		if !slices.Contains(known, e.key.Value) {
			r.add(e.key, joined(field, e.key.Value), near(e.key.Value, known), "no such field")
			continue
		}
		values[e.key.Value] = e.value
	}
	return values
}

func joined(field, key string) string {
	if field == "" {
		return key
	}
	return field + "." + key
}

// near suggests what a name was meant to be.
func near(name string, known []string) string {
	if len(name) > train.MaxIDLength {
		return ""
	}
	if meant := train.NearMiss(name, known); meant != "" {
		return "did you mean " + meant + "?"
	}
	return ""
}

// items are those of a list.
func (r *reader) items(n *yaml.Node, field string) []*yaml.Node {
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		r.add(n, field, "", "want a list, found %s", kind(n))
		return nil
	}
	return n.Content
}

// text reads a text; a number counts as its digits.
func (r *reader) text(n *yaml.Node, field string) string {
	if n == nil {
		return ""
	}
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		r.add(n, field, "", "want a text, found %s", kind(n))
		return ""
	}
	return n.Value
}

// oneOf reads one of some words.
func oneOf[T ~string](r *reader, n *yaml.Node, field string, otherwise T, known []T) T {
	if n == nil {
		return otherwise
	}
	word := T(r.text(n, field))
	if !slices.Contains(known, word) {
		words := make([]string, len(known))
		for i, k := range known {
			words[i] = string(k)
		}
		r.add(n, field, near(string(word), words), "want %s; found %s", strings.Join(words, ", "), kind(n))
	}
	return word
}

// number reads a finite number.
func (r *reader) number(n *yaml.Node, field string) float64 {
	var x float64
	if n == nil {
		return 0
	}
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" && n.Tag != "!!float" || n.Decode(&x) != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		r.add(n, field, "", "want a number, found %s", kind(n))
		return 0
	}
	return x
}

// whole reads a whole number of at least some size.
func (r *reader) whole(n *yaml.Node, field string, least int) int {
	if n == nil {
		return 0
	}
	before := len(r.problems)
	x := r.number(n, field)
	if len(r.problems) == before && (x != math.Trunc(x) || x < float64(least) || x > math.MaxInt32) {
		r.add(n, field, "", "want a whole number of at least %d, found %s", least, kind(n))
		return 0
	}
	return int(x)
}

// value reads what a parameter may be set to.
func (r *reader) value(n *yaml.Node, field string) search.Value {
	if n.Tag == "!!int" || n.Tag == "!!float" {
		return search.Number(r.number(n, field))
	}
	return search.Text(r.text(n, field))
}

// values reads one value, or a list of them.
func (r *reader) values(n *yaml.Node, field string) []search.Value {
	if n != nil && n.Kind == yaml.ScalarNode {
		return []search.Value{r.value(n, field)}
	}
	var list []search.Value
	for i, item := range r.items(n, field) {
		list = append(list, r.value(item, fmt.Sprintf("%s[%d]", field, i)))
	}
	return list
}

// find gives the node of a field like "a.b[2]", or the nearest around it.
func find(n *yaml.Node, field string) *yaml.Node {
	for part := range strings.FieldsFuncSeq(field, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		next := (*yaml.Node)(nil)
		if i, err := strconv.Atoi(part); err == nil && n.Kind == yaml.SequenceNode && i >= 0 && i < len(n.Content) {
			next = n.Content[i]
		}
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == part {
				next = n.Content[i+1]
			}
		}
		if next == nil {
			return n
		}
		n = next
	}
	return n
}
