package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// value is one JSON value as it was written: keys in their order, numbers as text.
type value struct {
	kind   valueKind
	text   string // of a string, number or boolean
	fields []field
	items  []value
}

type field struct {
	key string
	value
}

type valueKind int

const (
	kindReported valueKind = iota // its fault is told already
	kindNull
	kindBool
	kindNumber
	kindText
	kindList
	kindObject
)

// String says what was found, for a message.
func (v value) String() string {
	switch v.kind {
	case kindNull:
		return "null"
	case kindText:
		return fmt.Sprintf("%.80q", v.text)
	case kindBool, kindNumber:
		return fmt.Sprintf("%.80s", v.text)
	case kindList:
		return "a list"
	case kindObject:
		return "an object"
	default:
		return "something else"
	}
}

// literal is a word that other languages and libraries write where JSON has another one.
type literal struct{ word, code, message, hint string }

func literals() []literal {
	const finite = "give a finite number or leave the field out"
	return []literal{
		{"-Infinity", "NotFinite", "-Infinity is no JSON number", finite},
		{"+Infinity", "NotFinite", "+Infinity is no JSON number", finite},
		{"Infinity", "NotFinite", "Infinity is no JSON number", finite},
		{"-inf", "NotFinite", "-inf is no JSON number", finite},
		{"inf", "NotFinite", "inf is no JSON number", finite},
		{"-NaN", "NotFinite", "-NaN is no JSON number", finite},
		{"NaN", "NotFinite", "NaN is no JSON number", finite},
		{"nan", "NotFinite", "nan is no JSON number", finite},
		{"True", "WrongLiteral", "True is no JSON", "write true"},
		{"False", "WrongLiteral", "False is no JSON", "write false"},
		{"None", "WrongLiteral", "None is no JSON", "leave the field out"},
		{"undefined", "WrongLiteral", "undefined is no JSON", "leave the field out"},
	}
}

// reader turns bytes into a tree and notes what is wrong with them.
type reader struct {
	data []byte
	dec  *json.Decoder
	// patched are the offsets where a foreign literal was replaced by a 0, so that the rest could be read.
	patched map[int]bool
	notes   *notes
}

// readTree reads data. False where it stops being JSON; then the fault is noted.
func readTree(data []byte, n *notes) (value, bool) {
	r := reader{data: bytes.Clone(data), patched: map[int]bool{}, notes: n}
	for {
		r.dec = json.NewDecoder(bytes.NewReader(r.data))
		r.dec.UseNumber()
		root, again, ok := r.attempt()
		if !again || n.full() {
			return root, ok
		}
	}
}

// errFault ends a pass whose fault is noted.
var errFault = errors.New("fault noted")

func (r *reader) attempt() (root value, again, ok bool) {
	root, path, err := r.value("", 1)
	switch {
	case errors.Is(err, errFault):
		return value{}, false, false
	case err != nil:
		return value{}, r.patch(path), false
	}
	// The token reader is laxer than the grammar in places, and knows nothing of what follows.
	var whole json.RawMessage
	if err := json.Unmarshal(r.data, &whole); err != nil {
		r.notes.add(malformed(r.data, err))
		return value{}, false, false
	}
	return root, false, true
}

// value reads the next value. With an error it gives the path where reading stopped.
func (r *reader) value(path string, depth int) (value, string, error) {
	if depth > maxDepth {
		r.notes.add(train.Reason{Code: "TooDeep", Field: path, Message: fmt.Sprintf("nested deeper than %d levels", maxDepth)})
		return value{}, path, errFault
	}
	token, err := r.dec.Token()
	if err != nil {
		return value{}, path, err
	}
	switch t := token.(type) {
	case json.Delim:
		if t == '{' {
			return r.object(path, depth)
		}
		return r.list(path, depth)
	case json.Number:
		if r.patched[int(r.dec.InputOffset())-1] && t == "0" {
			return value{kind: kindReported}, path, nil
		}
		return value{kind: kindNumber, text: t.String()}, path, nil
	case string:
		return value{kind: kindText, text: t}, path, nil
	case bool:
		return value{kind: kindBool, text: fmt.Sprint(t)}, path, nil
	default:
		return value{kind: kindNull}, path, nil
	}
}

func (r *reader) object(path string, depth int) (value, string, error) {
	v := value{kind: kindObject}
	for r.dec.More() {
		token, err := r.dec.Token()
		if err != nil {
			return v, path, err
		}
		key, isText := token.(string)
		if !isText {
			return v, path, errors.New("a key is no string")
		}
		child, where, err := r.value(joinPath(path, key), depth+1)
		if err != nil {
			return v, where, err
		}
		v.fields = append(v.fields, field{key, child})
	}
	_, err := r.dec.Token()
	return v, path, err
}

func (r *reader) list(path string, depth int) (value, string, error) {
	v := value{kind: kindList}
	for r.dec.More() {
		child, where, err := r.value(fmt.Sprintf("%s[%d]", path, len(v.items)), depth+1)
		if err != nil {
			return v, where, err
		}
		v.items = append(v.items, child)
	}
	_, err := r.dec.Token()
	return v, path, err
}

// patch notes why reading stopped at path. A foreign literal is replaced by a 0, and true asks for another pass.
func (r *reader) patch(path string) bool {
	at := int(r.dec.InputOffset())
	at += len(r.data[at:]) - len(bytes.TrimLeft(r.data[at:], " \t\r\n:,"))
	for _, l := range literals() {
		rest, ok := bytes.CutPrefix(r.data[at:], []byte(l.word))
		if !ok || len(rest) > 0 && !bytes.ContainsAny(rest[:1], " \t\r\n,]}") {
			continue
		}
		r.notes.add(train.Reason{Code: l.code, Field: path, Message: l.message, Hint: l.hint})
		copy(r.data[at:], "0"+strings.Repeat(" ", len(l.word)-1))
		r.patched[at] = true
		return true
	}
	var whole json.RawMessage
	err := json.Unmarshal(r.data, &whole)
	if err == nil {
		err = errors.New("unexpected order of tokens")
	}
	r.notes.add(malformed(r.data, err))
	return false
}

// malformed says where data stops being JSON.
func malformed(data []byte, err error) train.Reason {
	reason := train.Reason{Code: "MalformedJSON", Message: "no JSON: " + err.Error(), Hint: "the body is one JSON object, such as {\"name\": \"mnist\", ..}"}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		before := data[:min(max(int(syntax.Offset)-1, 0), len(data))]
		line := 1 + bytes.Count(before, []byte("\n"))
		column := len(before) - bytes.LastIndexByte(before, '\n')
		reason.Message = fmt.Sprintf("no JSON: line %d, column %d: %s", line, column, syntax.Error())
	}
	return reason
}

// joinPath names a key below path; a long key is cut.
func joinPath(path, key string) string {
	key = clip(key, 80)
	if path == "" {
		return key
	}
	return clip(path, 200) + "." + key
}

// clip cuts s after at most n runes.
func clip(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i] + ".."
		}
		n--
	}
	return s
}
