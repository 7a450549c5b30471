package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"reflect"
	"regexp"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/switchyard-dl/switchyard/services/web/api"
)

// object is a JSON object; its keys are written in order.
type object = map[string]any

// openAPI describes the routes of the service web, by OpenAPI 3.1, and returns the types of their bodies.
func openAPI(src *source) (document []byte, types jsonschema.Definitions) {
	types = jsonschema.Definitions{}
	paths := object{}
	for _, route := range api.Routes() {
		at, _ := paths[route.Path].(object)
		if at == nil {
			at = object{}
			paths[route.Path] = at
		}
		at[strings.ToLower(route.Method)] = src.operation(types, route)
	}
	doc := object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Switchyard", "version": strings.TrimPrefix(api.Prefix, "/api/"),
			"description": "Questions and facts of people. The service web listens on the Unix socket " + api.SocketName + " in the data folder.",
		},
		"paths":      paths,
		"components": object{"schemas": types},
	}
	data, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("encode the description of the API: %v", err)) // a fault of this program
	}
	return append(bytes.ReplaceAll(data, []byte(`"#/$defs/`), []byte(`"#/components/schemas/`)), '\n'), types
}

func (src *source) operation(types jsonschema.Definitions, route api.Route) object {
	media, status := "application/json", http.StatusOK
	if route.Streams {
		media = "text/event-stream"
	}
	var parameters []object
	if strings.Contains(route.Path, "{id}") {
		parameters = append(parameters, object{"name": "id", "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	for _, p := range route.Query {
		kind := object{"type": "string"}
		if p.Whole {
			kind = object{"type": "integer", "minimum": 0}
		}
		parameters = append(parameters, object{"name": p.Name, "in": "query", "description": p.Doc, "schema": kind})
	}
	operation := object{"summary": route.Doc, "operationId": operationID(route)}
	if route.Fact.Fact != "" {
		status = http.StatusAccepted
		parameters = append(parameters, object{
			"name": api.KeyHeader, "in": "header", "schema": object{"type": "string"},
			"description": "The same fact under the same key is stored once.",
		})
		body := object{"application/json": object{"schema": object{"$ref": path.Join(path.Base(schemaDir), schemaFile(route.Fact))}}}
		operation["requestBody"] = object{"content": body}
	}
	if route.Body != nil {
		operation["requestBody"] = object{"content": object{media: object{"schema": src.answer(types, route.Body)}}}
	}
	if route.Media != "" {
		operation["requestBody"] = object{"content": object{route.Media: object{"schema": object{"type": "string", "format": "binary"}}}}
	}
	if len(parameters) > 0 {
		operation["parameters"] = parameters
	}
	done := object{}
	if route.Answer != nil {
		done["content"] = object{media: object{"schema": src.answer(types, route.Answer)}}
	} else {
		status = http.StatusNoContent
	}
	if route.Method == http.MethodPost && route.Fact.Fact == "" && route.Body == nil {
		status = http.StatusCreated
	}
	done["description"] = http.StatusText(status)
	operation["responses"] = object{
		fmt.Sprint(status): done,
		"default":          object{"description": "What is wrong, by RFC 9457.", "content": object{api.ProblemType: object{"schema": src.answer(types, api.Problem{})}}},
	}
	return operation
}

// operationID names an operation in one word: jobs, or job_cancel_requested.
func operationID(route api.Route) string {
	if route.Fact.Fact != "" {
		return route.Fact.Entity + "_" + route.Fact.Fact
	}
	return route.Name
}

// answer returns the schema of a type, and adds to types what it refers to.
func (src *source) answer(types jsonschema.Definitions, example any) *jsonschema.Schema {
	r := jsonschema.Reflector{Anonymous: true, AllowAdditionalProperties: true, LookupComment: src.about, Mapper: src.words, Namer: wholeName}
	s := r.Reflect(example)
	maps.Copy(types, s.Definitions)
	s.Definitions, s.Version = nil, ""
	return s
}

// wholeName names a type with its package, and a generic type with its argument. A type without a name has none here.
func wholeName(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Name() == "" {
		return ""
	}
	argument := regexp.MustCompile(`\[.*/([^/]*)\]$`)
	return path.Base(t.PkgPath()) + "." + argument.ReplaceAllString(t.Name(), ".$1")
}
