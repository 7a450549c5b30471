package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
)

// decoded reads JSON as the validator wants it.
func decoded(t *testing.T, text []byte) any {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// TestTheBusIsDescribedAsAsyncAPIWants validates the document against the schema that the AsyncAPI initiative
// publishes: schemas/3.0.0-without-$id.json of the npm package @asyncapi/specs 6.8.1, Apache-2.0, without white space.
func TestTheBusIsDescribedAsAsyncAPIWants(t *testing.T) {
	packed, err := os.Open("testdata/asyncapi-3.0.0.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = packed.Close() }()
	in, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	published, err := jsonschema.UnmarshalJSON(in)
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("asyncapi.json", published); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("asyncapi.json")
	if err != nil {
		t.Fatal(err)
	}
	text := asyncAPI()
	if err := schema.Validate(decoded(t, text)); err != nil {
		t.Fatal(err)
	}
	broken := bytes.Replace(text, []byte(`"action": "send"`), []byte(`"action": "shout"`), 1)
	if err := schema.Validate(decoded(t, broken)); err == nil {
		t.Error("the schema accepts an action that is none")
	}
}

// TestTheBusIsDescribedWhole finds each fact and record in the document, and whatever the document refers to.
func TestTheBusIsDescribedWhole(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Channels   map[string]struct{ Address string }
		Operations map[string]struct {
			Action  string
			Channel struct {
				Ref string `json:"$ref"`
			}
		}
		Components struct {
			Messages map[string]struct {
				Payload struct {
					Schema struct {
						Ref string `json:"$ref"`
					}
				}
			}
		}
	}
	if err := json.Unmarshal(asyncAPI(), &doc); err != nil {
		t.Fatal(err)
	}
	want := len(event.Kinds())
	for _, b := range contract.Buckets() {
		want += len(b.Records)
	}
	if len(doc.Channels) != want || len(doc.Operations) != want || len(doc.Components.Messages) != want {
		t.Errorf("%d channels, %d operations, %d messages of %d facts and records",
			len(doc.Channels), len(doc.Operations), len(doc.Components.Messages), want)
	}
	for name, operation := range doc.Operations {
		if _, there := doc.Channels[strings.TrimPrefix(operation.Channel.Ref, "#/channels/")]; !there {
			t.Errorf("%s refers to %s", name, operation.Channel.Ref)
		}
	}
	for name, message := range doc.Components.Messages {
		if _, err := os.Stat(filepath.Join(root, "docs", message.Payload.Schema.Ref)); err != nil {
			t.Errorf("%s refers to %s: %v", name, message.Payload.Schema.Ref, err)
		}
	}
	if c := doc.Channels["job.submitted.v1"]; c.Address != "yard.job.{id}.submitted.v1" || doc.Operations["receive.job.submitted.v1"].Action != "receive" {
		t.Errorf("submissions are described as %+v", c)
	}
	if c := doc.Channels["record.reports.AttemptReport"]; c.Address != "$KV.reports.{job}.{attempt}" {
		t.Errorf("reports are described as %+v", c)
	}
}

// TestSchemasAreKnownByTheirNames compiles each schema under its $id, which is where the site has it.
func TestSchemasAreKnownByTheirNames(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(root, schemaDir, "*.json"))
	if err != nil || len(found) < len(event.Kinds()) {
		t.Fatalf("%d schemas (%v)", len(found), err)
	}
	compiler := jsonschema.NewCompiler()
	for _, path := range found {
		file := filepath.Base(path)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var head struct {
			ID string `json:"$id"`
		}
		if err := json.Unmarshal(text, &head); err != nil || head.ID != site+schemaDir+"/"+file {
			t.Fatalf("%s has the $id %q (%v)", file, head.ID, err)
		}
		if err := compiler.AddResource(head.ID, decoded(t, text)); err != nil {
			t.Fatal(err)
		}
		if _, err := compiler.Compile(head.ID); err != nil {
			t.Error(err)
		}
	}
	submission, err := compiler.Compile(site + schemaDir + "/job.submitted.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := submission.Validate(decoded(t, []byte(`{"name":"a","command":["true"]}`))); err != nil {
		t.Error(err)
	}
	if err := submission.Validate(decoded(t, []byte(`{"name":"a","comand":["true"]}`))); err == nil {
		t.Error("a misspelt key is accepted")
	}
}
