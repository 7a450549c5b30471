package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// typeName names the type of a value, for people.
func (s *Setting) typeName() string {
	if len(s.choices) > 0 {
		return strings.Join(s.choices, ", ")
	}
	words, _ := s.kind.describe()
	return words
}

// Markdown is the reference of all settings: a table for each section.
func (s *Set) Markdown() string {
	var b strings.Builder
	cell := func(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
	for _, section := range s.sections {
		fmt.Fprintf(&b, "## %s\n\n%s\n\n", section.Name, section.About)
		if len(section.Settings) == 0 {
			continue
		}
		b.WriteString("| key | type | default | variable, flag | meaning |\n|---|---|---|---|---|\n")
		for _, x := range section.Settings {
			kind := x.typeName()
			if span := x.span(); span != "" {
				kind += ", " + span
			}
			var names []string
			if !x.noEnv {
				names = append(names, "`"+x.Variable()+"`")
			}
			if x.typed {
				names = append(names, "`--"+x.Name+"`")
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", x.Key, kind, cell(x.DefaultText()), strings.Join(names, ", "), cell(x.Help))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Schema is the JSON Schema of the file, for editors.
func (s *Set) Schema() ([]byte, error) {
	sections := map[string]any{}
	for _, section := range s.sections {
		keys := map[string]any{}
		for _, x := range section.Settings {
			keys[x.Key] = x.schema()
		}
		// If all settings of a section are commented out, its value is null.
		sections[section.Name] = map[string]any{
			"type": []string{"object", "null"}, "description": section.About, "properties": keys, "additionalProperties": false,
		}
	}
	text, err := json.MarshalIndent(map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Configuration of Switchyard (" + FileName + ")",
		"type": []string{"object", "null"}, "properties": sections, "additionalProperties": false,
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the schema of the configuration: %w", err)
	}
	return append(text, '\n'), nil
}

func (s *Setting) schema() map[string]any {
	m := map[string]any{"description": s.Help}
	if s.kind < kindTexts || s.shown != "" {
		m["description"] = s.Help + " (default: " + s.DefaultText() + ")"
	}
	_, kind := s.kind.describe()
	maps.Copy(m, kind)
	if len(s.choices) > 0 {
		m["enum"] = s.choices
	}
	if s.kind != kindWhole && s.kind != kindNumber {
		return m
	}
	if s.low != nil {
		m["minimum"] = *s.low
	}
	if s.high != nil {
		m["maximum"] = *s.high
	}
	return m
}

// describe is the type of a value for people, and in JSON Schema.
func (k kind) describe() (words string, schema map[string]any) {
	of := func(kind string) map[string]any { return map[string]any{"type": kind} }
	list := func(kind string) map[string]any { return map[string]any{"type": "array", "items": of(kind)} }
	byName := func(kind string) map[string]any {
		return map[string]any{"type": "object", "additionalProperties": of(kind)}
	}
	switch k {
	case kindWhole:
		return "integer", of("integer")
	case kindNumber:
		return "number", of("number")
	case kindBool:
		return "boolean", of("boolean")
	case kindDuration:
		return "duration", map[string]any{"type": "string", "pattern": `^-?([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`}
	case kindTexts:
		return "list", list("string")
	case kindNumbers:
		return "list of numbers", list("number")
	case kindTextMap:
		return "map of texts", byName("string")
	case kindWholeMap:
		return "map of integers", byName("integer")
	case kindText:
	}
	return "text", of("string")
}
