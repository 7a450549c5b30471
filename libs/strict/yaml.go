package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Document reads a file that holds one document in YAML or JSON. It returns nil, and reports the problem, if the file
// cannot be read to its end.
func (r *Reader) Document(data []byte) *Node {
	if json.Valid(data) {
		n, _ := r.JSON(data) // where YAML and JSON differ (tabs, surrogates), a JSON file is JSON
		return n
	}
	return r.YAML(data)
}

// YAML reads a text that holds one YAML document, or returns nil.
func (r *Reader) YAML(data []byte) *Node {
	if !r.acceptable(data) {
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF) || err == nil && len(document.Content) == 0:
		r.AddAt(Position{}, CodeYAML, "", "", "the file is empty")
		return nil
	case err != nil:
		r.AddYAML(err)
		return nil
	}
	if err := decoder.Decode(&second); err == nil {
		r.AddAt(positionOf(&second), CodeYAML, "", "put it into a file of its own", "want one document, found another one after ---")
		return nil
	} else if !errors.Is(err, io.EOF) {
		r.AddYAML(err)
		return nil
	}
	var root Node
	if !r.convert(document.Content[0], &root, 1) {
		return nil
	}
	return &root
}

// AddYAML reports what the YAML parser says, which knows lines.
func (r *Reader) AddYAML(err error) {
	messages := []string{err.Error()}
	if types, ok := errors.AsType[*yaml.TypeError](err); ok {
		messages = types.Errors
	}
	for _, m := range messages {
		var at Position
		m = strings.TrimPrefix(m, "yaml: ")
		if rest, found := strings.CutPrefix(m, "line "); found {
			if number, words, ok := strings.Cut(rest, ": "); ok {
				line, _ := strconv.ParseInt(number, 10, 32)
				at.Line, m = int32(line), words
			}
		}
		r.AddAt(at, CodeYAML, "", "", "neither JSON nor YAML: %s", m)
	}
}

func positionOf(y *yaml.Node) Position { return Position{int32(y.Line), int32(y.Column)} }

// convert turns a node of the YAML parser into n. False ends the reading; the problem is reported.
func (r *Reader) convert(y *yaml.Node, n *Node, depth int) bool {
	n.Position = positionOf(y)
	switch {
	case y.Kind == yaml.AliasNode:
		r.here(n.Position, CodeReference, "write it out", "references (*%.80s) are not read", y.Value)
		return false
	case y.Anchor != "":
		r.here(n.Position, CodeReference, "leave it out", "anchors (&%.80s) are not read", y.Anchor)
		return false
	case y.Kind != yaml.ScalarNode && depth > MaxDepth:
		r.here(n.Position, CodeTooDeep, "", "nested deeper than %d levels", MaxDepth)
		return false
	case y.Kind == yaml.SequenceNode:
		n.Kind, n.Items = List, make([]Node, len(y.Content))
		for i, item := range y.Content {
			r.push("", i)
			if !r.convert(item, &n.Items[i], depth+1) {
				return false
			}
			r.pop()
		}
		return true
	case y.Kind == yaml.MappingNode:
		return r.convertObject(y, n, depth)
	}
	return r.convertScalar(y, n)
}

func (r *Reader) convertObject(y *yaml.Node, n *Node, depth int) bool {
	n.Kind, n.Entries = Object, make([]Entry, len(y.Content)/2)
	for i := range n.Entries {
		key, e := y.Content[2*i], &n.Entries[i]
		e.Position = positionOf(key)
		if key.Kind != yaml.ScalarNode || key.Anchor != "" || key.ShortTag() == "!!merge" {
			r.here(e.Position, CodeYAML, "", "want a plain key")
			return false
		}
		e.Key = key.Value
		r.push(e.Key, -1)
		if !r.convert(y.Content[2*i+1], &e.Value, depth+1) {
			return false
		}
		r.pop()
	}
	return true
}

func (r *Reader) convertScalar(y *yaml.Node, n *Node) bool {
	n.Text, n.raw = y.Value, y.Value
	switch y.ShortTag() {
	case "!!null":
		n.Kind = Null
	case "!!bool":
		n.Kind, n.Text = Bool, strings.ToLower(y.Value)
	case "!!int":
		n.Kind, n.Text = Number, integerText(y)
	case "!!float":
		n.Kind, n.Text = Number, floatText(y)
	case "!!str":
		n.Kind = Text
	case "!!timestamp":
		n.Kind = Text
		var at time.Time
		if y.Decode(&at) == nil {
			n.Text = at.Format(time.RFC3339Nano)
		}
	default:
		r.here(n.Position, CodeYAML, "write the value without it", "the tag %.80s is not read", y.Tag)
		return false
	}
	return true
}

// integerText spells a whole number in decimal digits: YAML also has 0x10, 0o17 and 1_000.
func integerText(y *yaml.Node) string {
	var i int64
	if y.Decode(&i) == nil {
		return strconv.FormatInt(i, 10)
	}
	var u uint64
	if y.Decode(&u) == nil {
		return strconv.FormatUint(u, 10)
	}
	return y.Value
}

// floatText spells a number as JSON does, if JSON can.
func floatText(y *yaml.Node) string {
	if _, err := strconv.ParseFloat(y.Value, 64); err == nil && !slices.Contains([]string{"nan", "inf"}, strings.ToLower(strings.Trim(y.Value, "+-."))) {
		return y.Value
	}
	var f float64
	if y.Decode(&f) == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return y.Value
}
