// Package strict reads what people and programs send to Switchyard: JSON and YAML. One checker reads from one tree,
// whichever of the two the text was.
//
// It reports all problems at once, each with its line and the path of the field, and suggests the name that a misspelt
// key was meant to be. Unknown keys, duplicate keys, references (*name), wrong types and numbers that do not fit are
// refused. A hostile text costs no more than its size: its length, its depth and the number of reported problems are
// bounded, and the text is never expanded.
//
// The package decides nothing about the meaning of values.
package strict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Codes of problems, for programs.
const (
	CodeTooLarge  = "TooLarge"
	CodeTooDeep   = "TooDeep"
	CodeNotUTF8   = "NotUTF8"
	CodeMalformed = "MalformedJSON"
	CodeYAML      = "MalformedYAML"
	CodeNotFinite = "NotFinite"
	CodeLiteral   = "WrongLiteral"
	CodeType      = "WrongType"
	CodeRange     = "OutOfRange"
	CodeUnknown   = "UnknownField"
	CodeDuplicate = "DuplicateField"
	CodeReference = "Reference"
	CodeMore      = "TooManyProblems"
	CodeValue     = "WrongValue"
)

// Problem is one thing wrong with a text.
type Problem struct {
	Code string `json:"code"`
	// Line and Column count from 1; 0 is the text as a whole.
	Line   int `json:"line"`
	Column int `json:"column,omitempty"`
	// Field is a path such as ports[0].node_port.
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// String is the problem in words. The column is left out if the field already says where the problem is.
func (p Problem) String() string {
	var b strings.Builder
	switch {
	case p.Line > 0 && p.Field == "" && p.Column > 0:
		fmt.Fprintf(&b, "line %d, column %d: ", p.Line, p.Column)
	case p.Line > 0:
		fmt.Fprintf(&b, "line %d: ", p.Line)
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Message)
	if p.Hint != "" {
		b.WriteString(" (" + p.Hint + ")")
	}
	return b.String()
}

// Problems is everything that is wrong with a text, by line.
type Problems []Problem

// Error has a line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, x := range p {
		lines[i] = x.String()
	}
	return strings.Join(lines, "\n")
}

// Bounds of a text, unless Options has others.
const (
	MaxBytes    = 256 << 10
	MaxDepth    = 32
	MaxProblems = 50
)

// Options change what a Reader accepts. The zero value is the strictest.
type Options struct {
	// MaxBytes bounds the text; 0 is MaxBytes.
	MaxBytes int
	// Tolerant ignores unknown keys, reads null as a missing key, and matches keys in any case, as encoding/json does:
	// programs of a newer version may send more than this one knows. A key that occurs twice is refused all the same.
	Tolerant bool
	// Nulls reads null as a missing key.
	Nulls bool
	// KeepEmpty reads an empty list or object as one, and not as a missing key.
	KeepEmpty bool
	// Words reads a number or boolean as the file spells it where text is wanted: a rack may be called 12.
	Words bool
	// SecondNames returns the key that another key is accepted for, or "".
	SecondNames func(key string) string
	// OtherNames returns the key that another program's key stands for, or "". It is only used for hints.
	OtherNames func(key string) string
}

// Reader turns a text into a tree, reads values from it, and collects what is wrong with both.
type Reader struct {
	options  Options
	problems Problems
	more     int
	// path leads to the value that is being read.
	path []step
}

// step is a key of an object or, with an empty key, a position in a list.
type step struct {
	key   string
	index int
}

// New makes a reader for one text.
func New(o Options) *Reader {
	if o.MaxBytes == 0 {
		o.MaxBytes = MaxBytes
	}
	o.Nulls = o.Nulls || o.Tolerant
	return &Reader{options: o}
}

// Add reports a problem with a node; n may be nil.
func (r *Reader) Add(n *Node, field, hint, format string, args ...any) {
	r.AddAt(n.position(), CodeValue, field, hint, format, args...)
}

// AddAt reports a problem at a position.
func (r *Reader) AddAt(at Position, code, field, hint, format string, args ...any) {
	if len(r.problems) >= MaxProblems {
		r.more++
		return
	}
	r.problems = append(r.problems, Problem{
		Code: code, Line: int(at.Line), Column: int(at.Column), Field: field, Message: fmt.Sprintf(format, args...), Hint: hint,
	})
}

// here reports a problem with the value that is being read.
func (r *Reader) here(at Position, code, hint, format string, args ...any) {
	if len(r.problems) >= MaxProblems {
		r.more++
		return
	}
	r.AddAt(at, code, r.where(), hint, format, args...)
}

// where is the path of the value that is being read. Long keys and paths are cut.
func (r *Reader) where() string {
	path := ""
	for _, s := range r.path {
		if s.key == "" && s.index >= 0 {
			path = fmt.Sprintf("%s[%d]", path, s.index)
		} else {
			path = Join(path, s.key)
		}
	}
	return path
}

func (r *Reader) push(key string, index int) { r.path = append(r.path, step{key, index}) }

func (r *Reader) pop() { r.path = r.path[:len(r.path)-1] }

// Count is the number of problems so far.
func (r *Reader) Count() int { return len(r.problems) + r.more }

// Problems returns all problems in the order of the text, nil if none.
func (r *Reader) Problems() Problems {
	slices.SortStableFunc(r.problems, func(x, y Problem) int { return cmp.Compare(x.Line, y.Line) })
	if r.more > 0 {
		return append(r.problems, Problem{Code: CodeMore, Message: fmt.Sprintf("and %d more problems", r.more)})
	}
	return r.problems
}

// Decode reads a file in YAML or JSON into target, as Bind describes. The error is Problems.
func Decode(data []byte, o Options, target any) error {
	r := New(o)
	if root := r.Document(data); root != nil {
		r.Bind(root, "", target)
	}
	return r.Err()
}

// Err returns the problems as an error, nil if none.
func (r *Reader) Err() error {
	if p := r.Problems(); len(p) > 0 {
		return p
	}
	return nil
}

// Join names a key below a path; a long key or path is cut.
func Join(path, key string) string {
	const longestKey, longestPath = 80, 200
	key = clip(key, longestKey)
	if path == "" {
		return key
	}
	return clip(path, longestPath) + "." + key
}

// clip cuts s after n characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := range s {
		if n == 0 {
			return s[:i] + ".."
		}
		n--
	}
	return s
}

// Near is the hint for a misspelt name, or "".
func Near(name string, known []string) string {
	const longest = 64 // a longer one is no misspelling, and comparing costs
	if len(name) > longest {
		return ""
	}
	if near := train.NearMiss(strings.ToLower(name), known); near != "" {
		return "did you mean " + near + "?"
	}
	if near := train.NearMiss(name, known); near != "" {
		return "did you mean " + near + "?"
	}
	return ""
}
