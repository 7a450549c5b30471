package settings_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/settings"
)

// A setting that no code reads would do nothing. Fields are found by their names, in the folders that use the settings.
func TestEverySettingIsRead(t *testing.T) {
	root := filepath.Join("..", "..")
	read := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		if name := entry.Name(); name == "testdata" || name == "lab" || path != root && strings.HasPrefix(name, ".") {
			return filepath.SkipDir
		}
		readIn(t, path, read)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range leaves(reflect.TypeFor[settings.All]()) {
		if !read[field] {
			t.Errorf("nothing reads the setting %s", field)
		}
	}
}

// leaves returns the names of the fields that hold values.
func leaves(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		if f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[time.Time]() {
			names = append(names, leaves(f.Type)...)
		} else {
			names = append(names, f.Name)
		}
	}
	return names
}

// readIn notes the fields that the Go files of a folder read, if one of the files uses the settings.
func readIn(t *testing.T, folder string, read map[string]bool) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var trees []*ast.File
	uses := filepath.Base(folder) == "settings"
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		trees = append(trees, tree)
		for _, spec := range tree.Imports {
			uses = uses || strings.HasSuffix(spec.Path.Value, `/libs/settings"`) || strings.HasSuffix(spec.Path.Value, `/libs/run"`)
		}
	}
	if !uses {
		return
	}
	for _, tree := range trees {
		ast.Inspect(tree, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.FuncDecl: // declares and checks a setting, which is no use of it
				return !strings.HasPrefix(strings.ToLower(node.Name.Name), "declare") && !strings.HasPrefix(node.Name.Name, "check")
			case *ast.SelectorExpr:
				read[node.Sel.Name] = true
			}
			return true
		})
	}
}
