package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
)

// asyncAPI describes the bus by AsyncAPI 3: a channel and an operation for each fact and for each type of record, with
// the schemas in schemaDir as bodies. Operations are those of the services: they send facts and records, and receive
// what people ask for.
func asyncAPI() []byte {
	d := bus{channels: object{}, operations: object{}, messages: object{}}
	for _, k := range event.Kinds() {
		d.fact(k)
	}
	for _, b := range contract.Buckets() {
		for _, r := range b.Records {
			d.record(b, r)
		}
	}
	doc := object{
		"asyncapi": "3.0.0",
		"info": object{
			"title": "Switchyard", "version": "1", "license": object{"name": "Apache-2.0"},
			"description": "The facts and records that Switchyard's services publish on NATS JetStream, and what people may ask for.",
			"externalDocs": object{
				"url": "https://github.com/switchyard-dl/switchyard/blob/main/docs/compatibility.md", "description": "What stays compatible.",
			},
		},
		"defaultContentType": "application/json",
		"servers": object{"installation": object{
			"host": "127.0.0.1:4222", "protocol": "nats", "description": "The bus of `switchyard up`; each process and user has an nkey.",
		}},
		"channels": d.channels, "operations": d.operations,
		"components": object{"messages": d.messages, "schemas": object{"headers": headers()}},
	}
	data, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("encode the description of the bus: %v", err)) // a fault of this program
	}
	return append(data, '\n')
}

// bus collects the parts of the document, by name.
type bus struct{ channels, operations, messages object }

func (d bus) fact(k event.Kind) {
	name, action := strings.TrimSuffix(schemaFile(k), ".json"), "send"
	if k.Asked() {
		action = "receive"
	}
	d.add(name, action, placeholder.ReplaceAllStringFunc(k.Subject(), parameter), k.Doc, object{
		"headers":  object{"$ref": "#/components/schemas/headers"},
		"x-stream": k.Stream, "x-publisher": k.Publisher, "x-idempotency-key": k.Key,
	}, schemaFile(k))
}

func (d bus) record(b contract.BucketInfo, r contract.Record) {
	file := recordFile(b, r)
	d.add(strings.TrimSuffix(file, ".json"), "send", "$KV."+b.Name+"."+placeholder.ReplaceAllStringFunc(r.Key, parameter), r.Doc, object{
		"x-bucket": b.Name, "x-writer": r.Writer, "x-readers": r.Readers,
	}, file)
}

// placeholder is a part of a key or subject that varies, such as <node id>.
var placeholder = regexp.MustCompile(`<[^>]+>`)

// parameter writes a placeholder as AsyncAPI does, <node id> as {node_id}.
func parameter(s string) string {
	return "{" + regexp.MustCompile(`[^A-Za-z0-9_-]+`).ReplaceAllString(strings.Trim(s, "<>"), "_") + "}"
}

// add describes a subject, the one message that it carries, and what the services do with it.
func (d bus) add(name, action, address, doc string, message object, schema string) {
	parameters := object{}
	for _, p := range regexp.MustCompile(`{([^}]+)}`).FindAllStringSubmatch(address, -1) {
		parameters[p[1]] = object{}
	}
	channel := object{"address": address, "messages": object{name: object{"$ref": "#/components/messages/" + name}}}
	if len(parameters) > 0 {
		channel["parameters"] = parameters
	}
	d.channels[name] = channel
	d.operations[action+"."+name] = object{"action": action, "channel": object{"$ref": "#/channels/" + name}, "summary": doc}
	message["name"], message["summary"] = name, doc
	message["payload"] = object{"schemaFormat": "application/schema+json;version=draft-2020-12", "schema": object{"$ref": "schemas/" + schema}}
	d.messages[name] = message
}

// headers is the schema of what all facts have beside their bodies.
func headers() object {
	properties := object{}
	for _, h := range factHeaders() {
		properties[h.name] = object{"type": "string", "description": plain(h.doc)}
	}
	return object{"type": "object", "properties": properties}
}

// plain drops the marks of Markdown, links included.
func plain(s string) string {
	return strings.ReplaceAll(regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(s, "$1"), "`", "")
}
