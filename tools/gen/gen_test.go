package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/event"
)

func generated(t *testing.T) (string, map[string][]byte) {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	files, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	return root, files
}

func TestTheDocumentsAreCurrent(t *testing.T) {
	root, files := generated(t)
	stale, err := staleFiles(root, files)
	if err != nil || len(stale) > 0 {
		t.Fatalf("run `make generate`: stale %v, error %v", stale, err)
	}
}

func TestTheSameCodeGivesTheSameBytes(t *testing.T) {
	_, first := generated(t)
	_, second := generated(t)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Fatal(diff)
	}
}

func TestCheckNamesWhatIsStaleAndWriteMendsIt(t *testing.T) {
	root, files := t.TempDir(), map[string][]byte{"docs/events.md": []byte("a"), "docs/schemas/x.json": []byte("b")}
	expect := func(want ...string) {
		t.Helper()
		stale, err := staleFiles(root, files)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, stale); diff != "" {
			t.Fatal(diff)
		}
	}
	expect("docs/events.md", "docs/schemas/x.json")
	if err := write(root, files, []string{"docs/events.md", "docs/schemas/x.json"}); err != nil {
		t.Fatal(err)
	}
	expect()
	for name, text := range map[string]string{"docs/events.md": "edited by hand", "docs/schemas/gone.v1.json": "{}"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expect("docs/events.md", "docs/schemas/gone.v1.json")
	if err := write(root, files, []string{"docs/events.md", "docs/schemas/gone.v1.json"}); err != nil {
		t.Fatal(err)
	}
	expect()
}

func TestCheckFailsOutsideAModule(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := run(true); err == nil || errors.Is(err, errStale) {
		t.Fatalf("error %v", err)
	}
}

// TestEveryKeyIsExplained fails for a field without a comment of its own: write one in libs/event, libs/train or
// libs/contract.
func TestEveryKeyIsExplained(t *testing.T) {
	root, files := generated(t)
	for _, page := range []string{"docs/job-file.md", "docs/events.md", "docs/records.md"} {
		for n, line := range strings.Split(string(files[page]), "\n") {
			if strings.HasPrefix(line, "| `") && strings.HasSuffix(line, "|  |") || strings.Contains(line, "| . One of") {
				t.Errorf("%s/%s:%d: %s", root, page, n+1, line)
			}
		}
	}
}

// The description of the API names no schema that is not there, and explains every key.
func TestTheAPIIsDescribed(t *testing.T) {
	root, files := generated(t)
	text := files["docs/openapi.json"]
	type property struct {
		Ref         string `json:"$ref"`
		Description string
	}
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]property }
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	for name, schema := range doc.Components.Schemas {
		for key, p := range schema.Properties {
			if p.Description == "" {
				t.Errorf("%s.%s is not explained", name, key)
			}
		}
	}
	for _, found := range regexp.MustCompile(`"\$ref": "([^"]*)"`).FindAllStringSubmatch(string(text), -1) {
		if name, own := strings.CutPrefix(found[1], "#/components/schemas/"); own {
			if _, there := doc.Components.Schemas[name]; !there {
				t.Errorf("%s refers to %s", root, name)
			}
		} else if files["docs/"+found[1]] == nil {
			t.Errorf("%s refers to docs/%s", root, found[1])
		}
	}
}

func TestSchemasHaveTheKeysOfTheBodies(t *testing.T) {
	_, files := generated(t)
	for _, k := range event.Kinds() {
		var schema struct {
			Title                string
			Properties           map[string]any
			AdditionalProperties *bool
		}
		if err := json.Unmarshal(files[schemaDir+"/"+schemaFile(k)], &schema); err != nil {
			t.Fatalf("%s: %v", schemaFile(k), err)
		}
		if schema.Title != k.Subject() {
			t.Errorf("%s has the title %q", schemaFile(k), schema.Title)
		}
		closed := schema.AdditionalProperties != nil && !*schema.AdditionalProperties
		if closed != (k.Fact == event.FactSubmitted) {
			t.Errorf("%s: closed is %v", k.Subject(), closed)
		}
		for _, key := range keys(reflect.TypeOf(k.New()).Elem()) {
			if schema.Properties[key] == nil {
				t.Errorf("%s lacks %s", schemaFile(k), key)
			}
		}
	}
}

func keys(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		if f.Anonymous {
			names = append(names, keys(f.Type)...)
			continue
		}
		names = append(names, wireName(f))
	}
	return names
}

func TestUnitsComeFromTheNames(t *testing.T) {
	for name, want := range map[string]string{"epoch_seconds": "s", "energy_uj": "µJ", "peak_uw": "µW", "memory_bytes": "bytes", "estimated_memory_mib": "MiB", "steps": ""} {
		if got := unitOf(name); got != want {
			t.Errorf("unit of %s: %q, want %q", name, got, want)
		}
	}
}
