package contract_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
)

// constants lists the names of the Bucket constants.
func constants(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "tables.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.ValueSpec); ok {
			if typ, ok := s.Type.(*ast.IndexExpr); ok && typ.X.(*ast.Ident).Name == "Bucket" {
				names = append(names, s.Names[0].Name)
			}
		}
		return true
	})
	return names
}

// users returns the services whose code opens a bucket, by the name of the constant.
func users(t *testing.T, names []string) map[string][]string {
	t.Helper()
	const services = "../../services"
	found := map[string]map[string]bool{}
	err := filepath.WalkDir(services, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
		if err != nil {
			return err
		}
		below, _ := filepath.Rel(services, path)
		service, _, _ := strings.Cut(filepath.ToSlash(below), "/")
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok || !slices.Contains(names, s.Sel.Name) {
				return true
			}
			if pkg, ok := s.X.(*ast.Ident); ok && pkg.Name == "contract" {
				if found[s.Sel.Name] == nil {
					found[s.Sel.Name] = map[string]bool{}
				}
				found[s.Sel.Name][service] = true
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for name, services := range found {
		all[name] = slices.Sorted(maps.Keys(services))
	}
	return all
}

// The table names every constant, and as writers and readers exactly the services whose code opens the bucket.
func TestTheTableIsTrue(t *testing.T) {
	names := constants(t)
	want := map[string][]string{}
	var listed []string
	for _, b := range contract.Buckets() {
		for _, r := range b.Records {
			listed = append(listed, r.Constant)
			if r.Constant == "Leases" {
				continue // libs/bus holds the leases of all services
			}
			services := slices.Clone(r.Readers)
			if r.Constant != "PowerLimits" { // its writer writes a longer record
				services = append(services, r.Writer)
			}
			slices.Sort(services)
			want[r.Constant] = services
		}
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(listed))); diff != "" {
		t.Errorf("constants and table differ: %s", diff)
	}
	if diff := cmp.Diff(want, users(t, names)); diff != "" {
		t.Errorf("the table (-) says something else than the code of the services (+): %s", diff)
	}
}

func TestGroupKeys(t *testing.T) {
	for _, key := range []string{"", "t", "x61.g", "t6.g", "tzz.g"} {
		if _, _, ok := contract.SplitGroupKey(key); ok {
			t.Errorf("%q is taken for the key of a group", key)
		}
	}
	if tenant, group, ok := contract.SplitGroupKey("t6120623e.nightly"); !ok || tenant != "a b>" || group != "nightly" {
		t.Errorf("%q, %q, %v", tenant, group, ok)
	}
}

// Every bucket and stream says what becomes of it if it is lost: docs/records.md has it from here.
func TestEveryBucketAndStreamSaysWhatIsLostWithIt(t *testing.T) {
	ways := []contract.Made{contract.Folded, contract.Observed, contract.Restored}
	for _, b := range contract.Buckets() {
		if !slices.Contains(ways, b.Made) || b.Loss == "" {
			t.Errorf("bucket %s: made %q, loss %q", b.Name, b.Made, b.Loss)
		}
	}
	for _, s := range event.Streams() {
		if s.Loss == "" {
			t.Errorf("stream %s does not say what is lost with it", s.Name)
		}
	}
}
