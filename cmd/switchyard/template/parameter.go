package template

import (
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Type is what a parameter may be set to.
type Type string

// The types. A path is absolute, and its text plain.
const (
	String Type = "string"
	Int    Type = "int"
	Float  Type = "float"
	Bool   Type = "bool"
	Path   Type = "path"
)

// Parameter is what may be set in a template.
type Parameter struct {
	Name     string   `json:"name"`
	Type     Type     `json:"type"`
	Doc      string   `json:"doc,omitempty"`
	Required bool     `json:"required,omitempty"`
	Min      *float64 `json:"min,omitempty"`
	Max      *float64 `json:"max,omitempty"`
	// Default and Choices are of the parameter's type: string, int64, float64 or bool.
	Default any   `json:"default,omitempty"`
	Choices []any `json:"choices,omitempty"`
}

// maxValue is the longest text that a parameter may have.
const maxValue = 16 << 10

// header is the first document.
type header struct {
	Description string    `yaml:"description"`
	Parameters  yaml.Node `yaml:"parameters"`
}

// declaration is a parameter as it is written.
type declaration struct {
	Type     string      `yaml:"type"`
	Doc      string      `yaml:"doc"`
	Required bool        `yaml:"required"`
	Min      *float64    `yaml:"min"`
	Max      *float64    `yaml:"max"`
	Default  yaml.Node   `yaml:"default"`
	Choices  []yaml.Node `yaml:"choices"`
}

func (t *Template) readHeader(text string, p *problems) {
	var h header
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&h); err != nil {
		wrong(err, 0, p)
		return
	}
	t.Description = h.Description
	switch {
	case h.Parameters.Kind == 0:
		return
	case h.Parameters.Kind != yaml.MappingNode:
		p.add(h.Parameters.Line, "parameters: want one entry for each, by name")
		return
	}
	for i := 0; i+1 < len(h.Parameters.Content); i += 2 {
		name, node := h.Parameters.Content[i], h.Parameters.Content[i+1]
		if _, twice := t.find(name.Value); twice {
			p.add(name.Line, "parameter %s is declared twice", name.Value)
			continue
		}
		t.Parameters = append(t.Parameters, declared(name.Value, node, p))
	}
}

// wrong enters an error of the YAML decoder; it knows lines.
func wrong(err error, line int, p *problems) {
	messages := []string{err.Error()}
	if types, ok := errors.AsType[*yaml.TypeError](err); ok {
		messages = types.Errors
	}
	for _, m := range messages {
		at := line
		m = strings.TrimPrefix(m, "yaml: ")
		if rest, found := strings.CutPrefix(m, "line "); found {
			if number, words, ok := strings.Cut(rest, ": "); ok {
				if n, err := strconv.Atoi(number); err == nil {
					at, m = n, words
				}
			}
		}
		m, _, _ = strings.Cut(m, " in type ") // which nobody outside knows
		p.add(at, "%s", m)
	}
}

// declared reads one parameter. What is wrong with it is entered; the rest of it is of use for further checks.
func declared(name string, node *yaml.Node, p *problems) Parameter {
	par := Parameter{Name: name}
	if !identifier(name) {
		p.add(node.Line, "parameter %q: want letters, digits and '_', not beginning with a digit", name)
	}
	for i := 0; node.Kind == yaml.MappingNode && i < len(node.Content); i += 2 {
		known := []string{"type", "doc", "required", "min", "max", "default", "choices"}
		if key := node.Content[i]; !slices.Contains(known, key.Value) {
			p.add(key.Line, "parameter %s: no such field: %s%s", name, key.Value, near(key.Value, known))
		}
	}
	var d declaration
	if err := node.Decode(&d); err != nil {
		wrong(err, node.Line, p)
		return par
	}
	par.Type, par.Doc, par.Required, par.Min, par.Max = Type(d.Type), d.Doc, d.Required, d.Min, d.Max
	if types := []string{string(String), string(Int), string(Float), string(Bool), string(Path)}; !slices.Contains(types, d.Type) {
		p.add(node.Line, "parameter %s: type %q: want string, int, float, bool or path%s", name, d.Type, near(d.Type, types))
		return par
	}
	par.bounds(node.Line, p)
	for i := range d.Choices {
		value, fault := par.read(d.Choices[i].Value)
		if fault != "" {
			p.add(d.Choices[i].Line, "choice of parameter %s: %s", name, fault)
		}
		par.Choices = append(par.Choices, value)
	}
	if d.Default.Kind == 0 {
		return par
	}
	if par.Required {
		p.add(d.Default.Line, "parameter %s: required, but it has a default", name)
	}
	value, fault := par.accept(d.Default.Value)
	if d.Default.Kind != yaml.ScalarNode {
		fault = "want one value"
	}
	if fault != "" {
		p.add(d.Default.Line, "default of parameter %s: %s", name, fault)
	}
	par.Default = value
	return par
}

func (par *Parameter) bounds(line int, p *problems) {
	number := par.Type == Int || par.Type == Float
	switch {
	case (par.Min != nil || par.Max != nil) && !number:
		p.add(line, "parameter %s: min and max are for numbers", par.Name)
	case par.Min != nil && par.Max != nil && *par.Min > *par.Max:
		p.add(line, "parameter %s: min is %g, max %g", par.Name, *par.Min, *par.Max)
	}
}

func identifier(s string) bool {
	for i, r := range s {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}

// near suggests what a name was meant to be.
func near(name string, known []string) string {
	if len(name) > train.MaxIDLength {
		return ""
	}
	if meant := train.NearMiss(name, known); meant != "" {
		return " (did you mean " + meant + "?)"
	}
	return ""
}

// accept reads a value and checks it against bounds and choices. The fault is in words.
func (par *Parameter) accept(text string) (value any, fault string) {
	value, fault = par.read(text)
	if fault != "" {
		return value, fault
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
		return value, fmt.Sprintf("want at least %g, found %s", *par.Min, text)
	case par.Max != nil && number > *par.Max:
		return value, fmt.Sprintf("want at most %g, found %s", *par.Max, text)
	case len(par.Choices) > 0 && !slices.Contains(par.Choices, value):
		words := make([]string, len(par.Choices))
		for i, c := range par.Choices {
			words[i] = fmt.Sprint(c)
		}
		return value, fmt.Sprintf("want %s, found %.80q%s", strings.Join(words, ", "), text, near(text, words))
	}
	return value, ""
}

// read turns text into a value of the type.
func (par *Parameter) read(text string) (value any, fault string) {
	if len(text) > maxValue || !utf8.ValidString(text) {
		return par.zero(), fmt.Sprintf("want UTF-8 text of at most %d bytes", maxValue)
	}
	switch par.Type {
	case Int:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return n, fmt.Sprintf("want a whole number, found %.80q", text)
		}
		return n, ""
	case Float:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return 0.0, fmt.Sprintf("want a number, found %.80q", text)
		}
		return f, ""
	case Bool:
		if text != "true" && text != "false" {
			return false, fmt.Sprintf("want true or false, found %.80q", text)
		}
		return text == "true", ""
	case Path:
		if !path.IsAbs(text) || strings.ContainsFunc(text, unicode.IsControl) {
			return text, fmt.Sprintf("want an absolute path, found %.80q", text)
		}
		return path.Clean(text), ""
	case String:
	}
	return text, ""
}

// zero is the value of a parameter that was left out and has no default: nothing, in the eyes of {{ if }}.
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
