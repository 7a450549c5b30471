package template

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/switchyard-dl/switchyard/libs/strict"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Type is the type of a parameter's value.
type Type string

// The types. A path is absolute, and its text plain.
const (
	String Type = "string"
	Int    Type = "int"
	Float  Type = "float"
	Bool   Type = "bool"
	Path   Type = "path"
)

// Parameter is a declared parameter of a template.
type Parameter struct {
	Name     string   `json:"name"`
	Type     Type     `json:"type"`
	Doc      string   `json:"doc,omitempty"`
	Required bool     `json:"required,omitempty"`
	Min      *float64 `json:"min,omitempty"`
	Max      *float64 `json:"max,omitempty"`
	// Default and Choices have the parameter's type: string, int64, float64 or bool.
	Default any   `json:"default,omitempty"`
	Choices []any `json:"choices,omitempty"`
}

// maxValue is the longest text of a parameter.
const maxValue = 16 << 10

// header is the first document.
type header struct {
	Description string      `json:"description"`
	Parameters  strict.Node `json:"parameters"`
}

// declaration is a parameter as written in the file.
type declaration struct {
	Type     string        `json:"type"`
	Doc      string        `json:"doc"`
	Required bool          `json:"required"`
	Min      *float64      `json:"min"`
	Max      *float64      `json:"max"`
	Default  *strict.Node  `json:"default"`
	Choices  []strict.Node `json:"choices"`
}

func (t *Template) readHeader(text string, p *problems) {
	root := p.YAML([]byte(text))
	if root == nil {
		return
	}
	var h header
	p.Bind(root, "", &h)
	t.Description = h.Description
	for _, e := range p.Entries(&h.Parameters, "parameters") {
		t.Parameters = append(t.Parameters, declared(e, p))
	}
}

func types() []string {
	return []string{string(String), string(Int), string(Float), string(Bool), string(Path)}
}

// declared reads one parameter. It reports errors; the rest of the parameter serves further checks.
func declared(e *strict.Entry, p *problems) Parameter {
	par, line := Parameter{Name: e.Key}, e.Value.Line
	if !train.Identifier(e.Key) {
		p.add(line, "", "parameter %q: want letters, digits and '_', not beginning with a digit", e.Key)
	}
	var d declaration
	before := p.Count()
	p.Bind(&e.Value, "parameters."+e.Key, &d)
	par.Type, par.Doc, par.Required, par.Min, par.Max = Type(d.Type), d.Doc, d.Required, d.Min, d.Max
	if !slices.Contains(types(), d.Type) {
		if p.Count() == before {
			p.add(line, strict.Near(d.Type, types()), "parameter %s: type %q: want string, int, float, bool or path",
				par.Name, d.Type)
		}
		return par
	}
	par.bounds(line, p)
	for i := range d.Choices {
		value, wrong := par.read(d.Choices[i].Written())
		if !d.Choices[i].Scalar() {
			wrong.message = "want one value"
		}
		if wrong.message != "" {
			p.add(d.Choices[i].Line, wrong.hint, "choice of parameter %s: %s", par.Name, wrong.message)
		}
		par.Choices = append(par.Choices, value)
	}
	if d.Default != nil {
		par.readDefault(d.Default, p)
	}
	return par
}

func (par *Parameter) readDefault(n *strict.Node, p *problems) {
	if par.Required {
		p.add(n.Line, "", "parameter %s: required, but it has a default", par.Name)
	}
	value, wrong := par.accept(n.Written())
	if !n.Scalar() {
		wrong = fault{message: "want one value"}
	}
	if wrong.message != "" {
		p.add(n.Line, wrong.hint, "default of parameter %s: %s", par.Name, wrong.message)
	}
	par.Default = value
}

func (par *Parameter) bounds(line int32, p *problems) {
	number := par.Type == Int || par.Type == Float
	switch {
	case (par.Min != nil || par.Max != nil) && !number:
		p.add(line, "", "parameter %s: min and max are for numbers", par.Name)
	case par.Min != nil && par.Max != nil && *par.Min > *par.Max:
		p.add(line, "", "parameter %s: min is %g, max %g", par.Name, *par.Min, *par.Max)
	}
}

// fault says what is wrong with a value; its message is empty if nothing is.
type fault struct{ message, hint string }

func faultf(format string, args ...any) fault { return fault{message: fmt.Sprintf(format, args...)} }

// accept reads a value and checks it against bounds and choices.
func (par *Parameter) accept(text string) (value any, wrong fault) {
	if value, wrong = par.read(text); wrong.message != "" {
		return value, wrong
	}
	number := 0.0
	switch v := value.(type) {
	case int64:
		number = float64(v)
	case float64:
		number = v
	}
	switch {
	case par.Min != nil && number < *par.Min:
		return value, faultf("want at least %g, found %s", *par.Min, text)
	case par.Max != nil && number > *par.Max:
		return value, faultf("want at most %g, found %s", *par.Max, text)
	case len(par.Choices) > 0 && !slices.Contains(par.Choices, value):
		words := make([]string, len(par.Choices))
		for i, c := range par.Choices {
			words[i] = fmt.Sprint(c)
		}
		return value, fault{fmt.Sprintf("want %s, found %.80q", strings.Join(words, ", "), text), strict.Near(text, words)}
	}
	return value, fault{}
}

// read turns text into a value of the type.
func (par *Parameter) read(text string) (value any, wrong fault) {
	if len(text) > maxValue || !utf8.ValidString(text) {
		return par.zero(), faultf("want UTF-8 text of at most %d bytes", maxValue)
	}
	switch par.Type {
	case Int:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return n, faultf("want a whole number, found %.80q", text)
		}
		return n, fault{}
	case Float:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return 0.0, faultf("want a number, found %.80q", text)
		}
		return f, fault{}
	case Bool:
		if text != "true" && text != "false" {
			return false, faultf("want true or false, found %.80q", text)
		}
		return text == "true", fault{}
	case Path:
		return readPath(text)
	case String:
	}
	return text, fault{}
}

func readPath(text string) (value any, wrong fault) {
	if !path.IsAbs(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return text, faultf("want an absolute path, found %.80q", text)
	}
	return path.Clean(text), fault{}
}

// zero is the value of a parameter that has neither a setting nor a default. It is false for {{ if }}.
func (par *Parameter) zero() any {
	switch par.Type {
	case Int:
		return int64(0)
	case Float:
		return 0.0
	case Bool:
		return false
	case String, Path:
	}
	return ""
}
