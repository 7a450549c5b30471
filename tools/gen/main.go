// Command gen writes docs/job-file.md, docs/events.md, docs/records.md, docs/access.md, docs/schemas,
// docs/openapi.json, docs/asyncapi.json, the custom resource of Kubernetes and the types of the Python client from the
// tables and types of libs/event, libs/contract, libs/access and services/web. With -check it writes nothing and names
// what is stale.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// errStale says that generated files are not what the code says.
var errStale = errors.New("generated files are stale: run `make generate`")

func main() {
	check := flag.Bool("check", false, "write nothing; exit with 1 and the names of stale files")
	flag.Parse()
	if err := run(*check); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(check bool) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	files, err := generate(root)
	if err != nil {
		return err
	}
	stale, err := staleFiles(root, files)
	if err != nil {
		return err
	}
	if check {
		if len(stale) > 0 {
			return fmt.Errorf("%w\n  %s", errStale, strings.Join(stale, "\n  "))
		}
		return nil
	}
	return write(root, files, stale)
}

// moduleRoot returns the folder of the product's module: the nearest one upwards, past the module of this program.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	for {
		if text, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && bytes.HasPrefix(text, []byte("module "+module+"\n")) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("find the module: no go.mod of %s above this folder", module)
		}
		dir = parent
	}
}

// schemaDir is the folder that holds generated files and nothing else.
const schemaDir = "docs/schemas"

// generate makes every file, by its path below root.
func generate(root string) (map[string][]byte, error) {
	src, err := readSource(root)
	if err != nil {
		return nil, err
	}
	explained := map[reflect.Type]string{}
	explain := func(page string, types []reflect.Type) {
		for _, t := range types {
			explained[t] = page
		}
	}
	jobFile, types := jobFilePage(src)
	explain("job-file.md", types)
	events, types := eventsPage(src, explained)
	explain("events.md", types)
	files := map[string][]byte{"docs/job-file.md": jobFile, "docs/events.md": events, "docs/records.md": recordsPage(src, explained), "docs/access.md": accessPage()}
	document, answers := openAPI(src)
	files[resourceFile] = customResource(src)
	files["docs/openapi.json"], files[pythonRecords] = document, pythonTypes(answers)
	files["docs/asyncapi.json"] = asyncAPI()
	for _, all := range []map[string][]byte{schemas(src), recordSchemas(src)} {
		for name, schema := range all {
			files[schemaDir+"/"+name] = schema
		}
	}
	return files, nil
}

// staleFiles are the files that differ from what was generated, and the schemas of facts that are gone.
func staleFiles(root string, files map[string][]byte) ([]string, error) {
	var stale []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		found, err := os.ReadFile(filepath.Join(root, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("compare %s: %w", name, err)
		}
		if err != nil || !bytes.Equal(found, files[name]) {
			stale = append(stale, name)
		}
	}
	entries, err := os.ReadDir(filepath.Join(root, schemaDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list %s: %w", schemaDir, err)
	}
	for _, e := range entries {
		if name := schemaDir + "/" + e.Name(); files[name] == nil {
			stale = append(stale, name)
		}
	}
	return stale, nil
}

func write(root string, files map[string][]byte, stale []string) error {
	if err := os.MkdirAll(filepath.Join(root, schemaDir), 0o755); err != nil {
		return fmt.Errorf("make %s: %w", schemaDir, err)
	}
	for _, name := range stale {
		at := filepath.Join(root, name)
		if files[name] == nil {
			if err := os.Remove(at); err != nil {
				return fmt.Errorf("remove %s: %w", name, err)
			}
			continue
		}
		if err := os.WriteFile(at, files[name], 0o644); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}
