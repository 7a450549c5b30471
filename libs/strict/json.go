package strict

import (
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"
)

// literal is a word that other languages and libraries write where JSON has another one.
type literal struct{ word, code, hint string }

func literals() []literal {
	const finite, leaveOut = "give a finite number or leave the field out", "leave the field out"
	return []literal{
		{"-Infinity", CodeNotFinite, finite},
		{"+Infinity", CodeNotFinite, finite},
		{"Infinity", CodeNotFinite, finite},
		{"-inf", CodeNotFinite, finite},
		{"inf", CodeNotFinite, finite},
		{"-NaN", CodeNotFinite, finite},
		{"NaN", CodeNotFinite, finite},
		{"nan", CodeNotFinite, finite},
		{"True", CodeLiteral, "write true"},
		{"False", CodeLiteral, "write false"},
		{"None", CodeLiteral, leaveOut},
		{"undefined", CodeLiteral, leaveOut},
	}
}

// scanner reads JSON (RFC 8259).
type scanner struct {
	r *Reader
	// data is a copy of the text. Keys and values are parts of it.
	data string
	at   int
	// position is that of the offset counted.
	position  Position
	counted   int
	lineStart int
}

// JSON reads a text that holds one JSON value. It returns false, and reports the problem, if the text cannot be read to
// its end.
func (r *Reader) JSON(data []byte) (*Node, bool) {
	if !r.acceptable(data) {
		return nil, false
	}
	s := &scanner{r: r, data: string(data), position: Position{Line: 1}}
	var root Node
	if !s.value(&root, 1) {
		return nil, false
	}
	if s.space(); s.at < len(s.data) {
		return nil, s.malformed()
	}
	return &root, true
}

// acceptable checks what holds for every text.
func (r *Reader) acceptable(data []byte) bool {
	switch {
	case len(data) > r.options.MaxBytes:
		r.AddAt(Position{}, CodeTooLarge, "", "", "the text has %d bytes, at most %d are read", len(data), r.options.MaxBytes)
		return false
	case !utf8.Valid(data):
		r.AddAt(Position{}, CodeNotUTF8, "", "save the file as UTF-8", "the text is not UTF-8")
		return false
	}
	return true
}

func (s *scanner) space() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}

// here is the position of the next byte.
func (s *scanner) here() Position {
	for {
		i := strings.IndexByte(s.data[s.counted:s.at], '\n')
		if i < 0 {
			break
		}
		s.counted += i + 1
		s.lineStart = s.counted
		s.position.Line++
	}
	s.counted = s.at
	s.position.Column = int32(s.at - s.lineStart + 1)
	return s.position
}

// value reads the next value into n. False ends the reading; the problem is reported.
func (s *scanner) value(n *Node, depth int) bool {
	s.space()
	n.Position = s.here()
	if s.at == len(s.data) {
		return s.malformed()
	}
	switch c := s.data[s.at]; {
	case (c == '{' || c == '[') && depth > MaxDepth:
		return s.tooDeep(n)
	case c == '{':
		return s.object(n, depth)
	case c == '[':
		return s.list(n, depth)
	case c == '"':
		n.Kind = Text
		return s.text(&n.Text)
	case s.word("null"):
		n.Kind = Null
		return true
	case s.word("true"):
		n.Kind, n.Text = Bool, "true"
		return true
	case s.word("false"):
		n.Kind, n.Text = Bool, "false"
		return true
	}
	if end := number(s.data, s.at); end > s.at && delimited(s.data[end:]) {
		n.Kind, n.Text = Number, s.data[s.at:end]
		s.at = end
		return true
	}
	return s.foreign(n)
}

func (s *scanner) tooDeep(n *Node) bool {
	s.r.here(n.Position, CodeTooDeep, "", "nested deeper than %d levels", MaxDepth)
	return false
}

// delimited reports whether a word may end before rest.
func delimited(rest string) bool {
	return len(rest) == 0 || strings.IndexByte(" \t\r\n,]}", rest[0]) >= 0
}

// word skips a word if it is next.
func (s *scanner) word(w string) bool {
	if !strings.HasPrefix(s.data[s.at:], w) || !delimited(s.data[s.at+len(w):]) {
		return false
	}
	s.at += len(w)
	return true
}

// number returns the offset after the number that begins at start, or start.
func number(data string, start int) int {
	end := digits(data, skip(data, start, "-"))
	whole := strings.TrimPrefix(data[start:end], "-")
	if whole == "" || whole[0] == '0' && len(whole) > 1 {
		return start
	}
	if point := skip(data, end, "."); point > end {
		if end = digits(data, point); end == point {
			return start
		}
	}
	if exponent := skip(data, end, "eE"); exponent > end {
		first := skip(data, exponent, "+-")
		if end = digits(data, first); end == first {
			return start
		}
	}
	return end
}

// skip returns the offset after the byte at i if any contains it, else i.
func skip(data string, i int, any string) int {
	if i < len(data) && strings.IndexByte(any, data[i]) >= 0 {
		return i + 1
	}
	return i
}

// digits returns the offset after the digits that begin at i.
func digits(data string, i int) int {
	for i < len(data) && data[i] >= '0' && data[i] <= '9' {
		i++
	}
	return i
}

// text reads a string.
func (s *scanner) text(into *string) bool {
	start, escaped := s.at, false
	for i := s.at + 1; i < len(s.data); i++ {
		switch c := s.data[i]; {
		case c == '\\':
			escaped = true
			i++
		case c < ' ':
			return s.malformed()
		case c == '"':
			s.at = i + 1
			if !escaped {
				*into = s.data[start+1 : i]
				return true
			}
			if json.Unmarshal([]byte(s.data[start:s.at]), into) != nil {
				return s.malformed()
			}
			return true
		}
	}
	return s.malformed()
}

// next skips white space and c, if c follows.
func (s *scanner) next(c byte) bool {
	s.space()
	if s.at < len(s.data) && s.data[s.at] == c {
		s.at++
		return true
	}
	return false
}

// Room for the entries of most objects: of the outermost one, and of those in it.
const entriesOutside, entriesInside = 16, 4

func (s *scanner) object(n *Node, depth int) bool {
	n.Kind = Object
	s.at++
	if s.next('}') {
		return true
	}
	if depth == 1 {
		n.Entries = make([]Entry, 0, entriesOutside)
	} else {
		n.Entries = make([]Entry, 0, entriesInside)
	}
	for {
		s.space()
		if s.at == len(s.data) || s.data[s.at] != '"' {
			return s.malformed()
		}
		n.Entries = append(n.Entries, Entry{Position: s.here()})
		e := &n.Entries[len(n.Entries)-1]
		if !s.text(&e.Key) {
			return false
		}
		if !s.next(':') {
			return s.malformed()
		}
		s.r.push(e.Key, -1)
		if !s.value(&e.Value, depth+1) {
			return false
		}
		s.r.pop()
		if s.next('}') {
			return true
		}
		if !s.next(',') {
			return s.malformed()
		}
	}
}

func (s *scanner) list(n *Node, depth int) bool {
	n.Kind = List
	s.at++
	if s.next(']') {
		return true
	}
	for {
		n.Items = append(n.Items, Node{})
		s.r.push("", len(n.Items)-1)
		if !s.value(&n.Items[len(n.Items)-1], depth+1) {
			return false
		}
		s.r.pop()
		if s.next(']') {
			return true
		}
		if !s.next(',') {
			return s.malformed()
		}
	}
}

// foreign reports a word of another language and reads on after it.
func (s *scanner) foreign(n *Node) bool {
	for _, l := range literals() {
		if !strings.HasPrefix(s.data[s.at:], l.word) || !delimited(s.data[s.at+len(l.word):]) {
			continue
		}
		what := "no JSON"
		if l.code == CodeNotFinite {
			what = "no JSON number"
		}
		s.r.here(n.Position, l.code, l.hint, "%s is %s", l.word, what)
		// A later syntax error is found in what JSON would have here.
		s.data = s.data[:s.at] + "0" + strings.Repeat(" ", len(l.word)-1) + s.data[s.at+len(l.word):]
		s.at += len(l.word)
		n.Kind = Reported
		return true
	}
	return s.malformed()
}

// malformed reports where the text stops being JSON, in the words of encoding/json. It returns false.
func (s *scanner) malformed() bool {
	var whole json.RawMessage
	err := json.Unmarshal([]byte(s.data), &whole)
	at, words := s.here(), "unexpected order of tokens"
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		words = syntax.Error()
		before := s.data[:min(max(int(syntax.Offset)-1, 0), len(s.data))]
		at.Line = int32(1 + strings.Count(before, "\n"))
		at.Column = int32(len(before) - strings.LastIndexByte(before, '\n'))
	}
	s.r.AddAt(at, CodeMalformed, "", "", "no JSON: %s", words)
	return false
}
