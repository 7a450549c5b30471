package main

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/invopop/jsonschema"

	"github.com/switchyard-dl/switchyard/libs/event"
)

// schemas makes one JSON Schema for each fact, by file name. A submission may have no other keys; facts between services may grow.
func schemas(src *source) map[string][]byte {
	files := map[string][]byte{}
	for _, k := range event.Kinds() {
		r := jsonschema.Reflector{
			Anonymous: true, ExpandedStruct: true, AllowAdditionalProperties: k.Fact != event.FactSubmitted,
			LookupComment: src.about, Mapper: src.words,
		}
		s := r.Reflect(k.New())
		s.Title = k.Subject()
		s.Description = k.Doc
		data, err := json.MarshalIndent(s, "", "  ")
		if err != nil {
			panic(fmt.Sprintf("encode the schema of %s: %v", k.Subject(), err)) // a fault of this program
		}
		files[schemaFile(k)] = append(data, '\n')
	}
	return files
}

func schemaFile(k event.Kind) string {
	return fmt.Sprintf("%s.%s.v%d.json", k.Entity, k.Fact, k.Version)
}

// words gives the schema of a string type with constants; nil leaves a type to reflection.
func (src *source) words(t reflect.Type) *jsonschema.Schema {
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
