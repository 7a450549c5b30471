package main

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/invopop/jsonschema"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// schemas makes one JSON Schema for each fact, by file name. A submission may have no other keys; facts between
// services may grow.
func schemas(src *source) map[string][]byte {
	files := map[string][]byte{}
	for _, k := range event.Kinds() {
		files[schemaFile(k)] = src.schema(schemaFile(k), k.New(), k.Fact != event.FactSubmitted, k.Subject(), k.Doc)
	}
	return files
}

func schemaFile(k event.Kind) string {
	return fmt.Sprintf("%s.%s.v%d.json", k.Entity, k.Fact, k.Version)
}

// site is where the documentation is published, and under it the schemas.
const site = "https://switchyard-dl.github.io/switchyard/"

// schema makes the JSON Schema of a value for a file of schemaDir; mayGrow allows keys that it does not name.
func (src *source) schema(file string, value any, mayGrow bool, title, doc string) []byte {
	r := jsonschema.Reflector{
		Anonymous: true, ExpandedStruct: true, AllowAdditionalProperties: mayGrow, LookupComment: src.about, Mapper: src.words,
	}
	s := r.Reflect(value)
	s.ID, s.Title, s.Description = jsonschema.ID(site+schemaDir+"/"+file), title, doc
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("encode the schema of %s: %v", title, err)) // a fault of this program
	}
	return append(data, '\n')
}

// words gives the schema of a string type with constants, and of a type that encodes itself; nil leaves a type to
// reflection.
func (src *source) words(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[contract.Value]():
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "number"}, {Type: "string"}}}
	case reflect.TypeFor[unit.Duration]():
		return &jsonschema.Schema{Type: "string"}
	case reflect.TypeFor[curve.Interference](), reflect.TypeFor[*curve.Interference]():
		r := jsonschema.Reflector{Anonymous: true, DoNotReference: true, AllowAdditionalProperties: true, LookupComment: src.about, Mapper: src.words}
		s := r.Reflect(curve.StoredInterference{})
		s.Version = ""
		return s
	}
	values := src.enum(t)
	if t.Kind() != reflect.String || len(values) == 0 {
		return nil
	}
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, v)
	}
	return s
}

// encoded is the type whose fields a type has in JSON: its own, unless it encodes itself.
func encoded(t reflect.Type) reflect.Type {
	if t == reflect.TypeFor[curve.Interference]() {
		return reflect.TypeFor[curve.StoredInterference]()
	}
	if t == reflect.TypeFor[unit.Duration]() {
		return reflect.TypeFor[string]()
	}
	return t
}
