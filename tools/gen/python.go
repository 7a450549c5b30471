package main

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/invopop/jsonschema"
)

// pythonRecords is the file of the Python client with the types of the API.
const pythonRecords = "libs/python/switchyard/client/_records.py"

// pythonTypes writes the types of the API as Python knows them: a TypedDict for each object.
func pythonTypes(types jsonschema.Definitions) []byte {
	p := pythonWriter{types: types, names: pythonNames(types)}
	p.line(`"""What the API answers, and takes: one type for each schema of docs/openapi.json, from which ` + "`make generate`" + ` makes it."""`)
	p.line("")
	p.line("from __future__ import annotations")
	p.line("")
	p.line("from typing import Any, Dict, List, Literal, TypedDict, Union")
	for _, key := range slices.Sorted(maps.Keys(types)) {
		p.class(p.names[key], types[key])
	}
	return p.text.Bytes()
}

// pythonNames names the types: without their package, unless two have the same name.
func pythonNames(types jsonschema.Definitions) map[string]string {
	names, taken := map[string]string{}, map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(types)) { // train comes before view, whose types get its name in front
		words := strings.Split(key, ".")
		name := words[len(words)-1]
		if len(words) > 2 { // a generic type and its argument
			name = words[1] + name
		}
		if taken[name] {
			name = strings.ToUpper(words[0][:1]) + words[0][1:] + name
		}
		names[key], taken[name] = name, true
	}
	return names
}

type pythonWriter struct {
	types jsonschema.Definitions
	names map[string]string
	text  bytes.Buffer
}

func (p *pythonWriter) line(format string, args ...any) {
	fmt.Fprintf(&p.text, format+"\n", args...)
}

// class writes a type. Keys that may be missing are those of a class over that of the others: Python 3.8 has no
// NotRequired.
func (p *pythonWriter) class(name string, s *jsonschema.Schema) {
	required, optional := map[string]string{}, map[string]string{}
	var order []string
	if s.Properties != nil {
		for pair := s.Properties.Oldest(); pair != nil; pair = pair.Next() {
			order = append(order, pair.Key)
			if slices.Contains(s.Required, pair.Key) {
				required[pair.Key] = p.typed(pair.Value)
			} else {
				optional[pair.Key] = p.typed(pair.Value)
			}
		}
	}
	switch {
	case len(optional) == 0:
		p.fields(name, "TypedDict", "", s.Description, order, required)
	case len(required) == 0:
		p.fields(name, "TypedDict", ", total=False", s.Description, order, optional)
	default:
		p.fields("_"+name, "TypedDict", "", "", order, required)
		p.fields(name, "_"+name, ", total=False", s.Description, order, optional)
	}
}

func (p *pythonWriter) fields(name, base, total, doc string, order []string, fields map[string]string) {
	p.line("\n")
	for _, key := range order {
		if fields[key] != "" && slices.Contains(pythonKeywords(), key) { // what cannot be a name is a text in a call
			p.call("_"+name+"Words", total, order, fields)
			base = "_" + name + "Words, " + base
			break
		}
	}
	p.line("class %s(%s%s):", name, strings.TrimSuffix(base, ", TypedDict"), total)
	if doc != "" {
		p.line("    \"\"\"%s\"\"\"", doc)
		p.line("")
	}
	written := false
	for _, key := range order {
		if t := fields[key]; t != "" && !slices.Contains(pythonKeywords(), key) {
			p.line("    %s: %s", key, t)
			written = true
		}
	}
	if !written {
		p.line("    pass")
	}
}

// call writes those fields whose names are keywords of Python.
func (p *pythonWriter) call(name, total string, order []string, fields map[string]string) {
	var pairs []string
	for _, key := range order {
		if fields[key] != "" && slices.Contains(pythonKeywords(), key) {
			pairs = append(pairs, strconv.Quote(key)+": "+strconv.Quote(fields[key]))
		}
	}
	p.line("%s = TypedDict(%q, {%s}%s)", name, name, strings.Join(pairs, ", "), total)
	p.line("\n")
}

// pythonKeywords are the words that Python keeps to itself.
func pythonKeywords() []string {
	return strings.Fields("False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield")
}

// typed returns the type of a value.
func (p *pythonWriter) typed(s *jsonschema.Schema) string {
	switch {
	case s.Ref != "":
		return p.names[path.Base(s.Ref)]
	case len(s.Enum) > 0:
		words := make([]string, len(s.Enum))
		for i, v := range s.Enum {
			words[i] = fmt.Sprintf("%q", v)
		}
		return "Literal[" + strings.Join(words, ", ") + "]"
	case len(s.OneOf) > 0:
		all := make([]string, len(s.OneOf))
		for i, one := range s.OneOf {
			all[i] = p.typed(one)
		}
		return "Union[" + strings.Join(all, ", ") + "]"
	}
	switch s.Type {
	case "string":
		return "str"
	case "integer":
		return "int"
	case "number":
		return "float"
	case "boolean":
		return "bool"
	case "array":
		return "List[" + p.typed(s.Items) + "]"
	case "object":
		if s.AdditionalProperties != nil && s.Properties == nil {
			return "Dict[str, " + p.typed(s.AdditionalProperties) + "]"
		}
	}
	return "Any"
}
