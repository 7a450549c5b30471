package strict

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"unicode/utf8"
)

// foreign is what is wrong with a word that other languages and libraries write where JSON has another one.
type foreign struct{ code, what, hint string }

func foreignWords() map[string]foreign {
	number := foreign{CodeNotFinite, "no JSON number", "give a finite number or leave the field out"}
	missing := foreign{CodeLiteral, "no JSON", "leave the field out"}
	return map[string]foreign{
		"-Infinity": number, "+Infinity": number, "Infinity": number, "-inf": number, "inf": number, "-NaN": number, "NaN": number, "nan": number,
		"True": {CodeLiteral, "no JSON", "write true"}, "False": {CodeLiteral, "no JSON", "write false"}, "None": missing, "undefined": missing,
	}
}

// scanner turns JSON (RFC 8259) into a tree. encoding/json has checked the text before.
type scanner struct {
	r *Reader
	// data is a copy of the text up to its first syntax error. Keys and values are parts of it.
	data string
	at   int
	// foreign holds the offsets of words that are not JSON.
	foreign map[int]string
	// position is that of the offset counted.
	position  Position
	counted   int
	lineStart int
	tooDeep   bool
}

// JSON reads a text that holds one JSON value. It returns false, and reports the problem, if the text cannot be read to
// its end.
func (r *Reader) JSON(data []byte) (*Node, bool) {
	if !r.acceptable(data) {
		return nil, false
	}
	s := &scanner{r: r, data: string(data), position: Position{Line: 1}}
	var wrong *json.SyntaxError
	if !json.Valid(data) {
		wrong = s.repair()
	}
	var root Node
	whole := s.value(&root, 1)
	if wrong != nil && !s.tooDeep {
		line := 1 + strings.Count(s.data, "\n")
		at := Position{int32(line), int32(len(s.data) - strings.LastIndexByte(s.data, '\n'))}
		r.AddAt(at, CodeMalformed, "", "", "no JSON: %s", wrong)
	}
	if wrong != nil || !whole {
		return nil, false
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

// repair puts a number in the place of each foreign word. If the text is no JSON even then, repair cuts it at the
// error, which it returns.
func (s *scanner) repair() *json.SyntaxError {
	words, text := foreignWords(), []byte(s.data)
	s.foreign = map[int]string{}
	for _, at := range regexp.MustCompile(`"(?:[^"\\]|\\.)*"?|[-+]?\w+`).FindAllStringIndex(s.data, -1) {
		word := s.data[at[0]:at[1]]
		begins := at[0] == 0 || strings.IndexByte(" \t\r\n,:[", s.data[at[0]-1]) >= 0
		if _, known := words[word]; known && begins {
			s.foreign[at[0]] = word
			copy(text[at[0]:], "0"+strings.Repeat(" ", len(word)-1))
		}
	}
	s.data = string(text)
	var value json.RawMessage
	wrong, found := errors.AsType[*json.SyntaxError](json.Unmarshal(text, &value))
	if !found {
		return nil
	}
	s.data = s.data[:min(max(int(wrong.Offset)-1, 0), len(s.data))]
	return wrong
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

// value reads the next value into n. It returns false at the end of a text that was cut, and below the greatest depth,
// which it reports.
func (s *scanner) value(n *Node, depth int) bool {
	s.space()
	n.Position = s.here()
	if s.at == len(s.data) {
		return false
	}
	if word, found := s.foreign[s.at]; found {
		wrong := foreignWords()[word]
		s.r.here(n.Position, wrong.code, wrong.hint, "%s is %s", word, wrong.what)
		s.at += len(word)
		n.Kind = Reported
		return true
	}
	switch c := s.data[s.at]; {
	case (c == '{' || c == '[') && depth > MaxDepth:
		s.r.here(n.Position, CodeTooDeep, "", "nested deeper than %d levels", MaxDepth)
		s.tooDeep = true
		return false
	case c == '{':
		return s.object(n, depth)
	case c == '[':
		return s.list(n, depth)
	case c == '"':
		n.Kind = Text
		return s.text(&n.Text)
	}
	s.word(n)
	return true
}

// word reads a number, a boolean or null.
func (s *scanner) word(n *Node) {
	rest := s.data[s.at:]
	if end := strings.IndexAny(rest, " \t\r\n,]}"); end >= 0 {
		rest = rest[:end]
	}
	s.at += len(rest)
	switch rest {
	case "null":
		n.Kind = Null
	case "true", "false":
		n.Kind, n.Text = Bool, rest
	default:
		n.Kind, n.Text = Number, rest
	}
}

// text reads a string.
func (s *scanner) text(into *string) bool {
	start, escaped := s.at, false
	for i := s.at + 1; i < len(s.data); i++ {
		switch s.data[i] {
		case '\\':
			escaped = true
			i++
		case '"':
			s.at = i + 1
			if !escaped {
				*into = s.data[start+1 : i]
				return true
			}
			return json.Unmarshal([]byte(s.data[start:s.at]), into) == nil
		}
	}
	return false
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
		n.Entries = append(n.Entries, Entry{Position: s.here()})
		e := &n.Entries[len(n.Entries)-1]
		if !s.text(&e.Key) || !s.next(':') {
			return false
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
			return false
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
			return false
		}
	}
}
