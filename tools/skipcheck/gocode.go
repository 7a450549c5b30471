package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"
)

// goFunc is one function declaration: where it skips by itself, and which functions it calls.
type goFunc struct {
	isTest bool
	skipAt string
	calls  []string
}

// goCode is every function of the repository by "folder.Name". Methods are filed under their bare name, so that a
// method that skips counts against each caller of a method of that name in its folder; an extra row is the lesser evil.
type goCode struct {
	files *token.FileSet
	funcs map[string]*goFunc
}

func newGoCode() *goCode {
	return &goCode{files: token.NewFileSet(), funcs: map[string]*goFunc{}}
}

// add files the functions of the Go file at path; rel is its slash-separated path under the repository.
func (c *goCode) add(file, rel string) error {
	tree, err := parser.ParseFile(c.files, file, nil, parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse %s: %w", rel, err)
	}
	scan := scanner{dir: path.Dir(rel), rel: rel, files: c.files, imports: map[string]string{}}
	for _, spec := range tree.Imports {
		imported := strings.Trim(spec.Path.Value, `"`)
		name := path.Base(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		scan.imports[name] = imported
	}
	for _, decl := range tree.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		key := scan.dir + "." + fn.Name.Name
		if c.funcs[key] == nil {
			c.funcs[key] = &goFunc{}
		}
		scan.out = c.funcs[key]
		scan.out.isTest = scan.out.isTest || strings.HasSuffix(rel, "_test.go") && fn.Recv == nil && isTestName(fn.Name.Name)
		scan.visit(fn.Body, scan.testingNames(nil, fn.Type))
	}
	return nil
}

// tests adds to found every test that skips, by itself or in a function that it calls.
func (c *goCode) tests(found map[string]string) {
	for grew := true; grew; {
		grew = false
		for _, fn := range c.funcs {
			for _, callee := range fn.calls {
				if target := c.resolve(callee); fn.skipAt == "" && target != nil && target.skipAt != "" {
					fn.skipAt, grew = target.skipAt, true
				}
			}
		}
	}
	for key, fn := range c.funcs {
		if fn.isTest && fn.skipAt != "" {
			found[key] = fn.skipAt
		}
	}
}

// resolve finds a called function: its folder is known exactly within a folder, and otherwise by the longest folder
// that ends its import path.
func (c *goCode) resolve(callee string) *goFunc {
	for rest, ok := callee, true; ok; _, rest, ok = strings.Cut(rest, "/") {
		if fn := c.funcs[rest]; fn != nil {
			return fn
		}
	}
	return nil
}

func isTestName(name string) bool {
	for _, prefix := range []string{"Test", "Benchmark", "Fuzz"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// scanner walks one file's functions.
type scanner struct {
	dir, rel string
	files    *token.FileSet
	imports  map[string]string
	out      *goFunc
}

// visit walks a body in which names are the variables of a testing type. A function literal that takes a variable of
// the same name but of another type (a rapid.T, whose Skip only discards a draw) hides it.
func (s *scanner) visit(body ast.Node, names map[string]bool) {
	ast.Inspect(body, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncLit:
			s.visit(node.Body, s.testingNames(names, node.Type))
			return false
		case *ast.CallExpr:
			s.call(node, names)
		}
		return true
	})
}

func (s *scanner) call(call *ast.CallExpr, names map[string]bool) {
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		s.out.calls = append(s.out.calls, s.dir+"."+fun.Name)
	case *ast.SelectorExpr:
		name := fun.Sel.Name
		skips := name == "Skip" || name == "Skipf" || name == "SkipNow"
		ident, plain := fun.X.(*ast.Ident)
		switch {
		case plain && names[ident.Name] && skips,
			plain && s.imports[ident.Name] == "testing" && name == "Short",
			// A harness that keeps its testing.TB in a field.
			!plain && skips && strings.HasSuffix(s.rel, "_test.go"):
			if s.out.skipAt == "" {
				s.out.skipAt = fmt.Sprintf("%s:%d", s.rel, s.files.Position(call.Pos()).Line)
			}
		case plain && s.imports[ident.Name] != "":
			s.out.calls = append(s.out.calls, s.imports[ident.Name]+"."+name)
		default:
			s.out.calls = append(s.out.calls, s.dir+"."+name)
		}
	}
}

// testingNames returns the names that hold a testing.T, B, F or TB inside a function of this type, given those outside.
func (s *scanner) testingNames(outer map[string]bool, signature *ast.FuncType) map[string]bool {
	names := map[string]bool{}
	for name := range outer {
		names[name] = true
	}
	for _, field := range signature.Params.List {
		kind := field.Type
		if star, ok := kind.(*ast.StarExpr); ok {
			kind = star.X
		}
		selector, ok := kind.(*ast.SelectorExpr)
		isTesting := false
		if ok {
			pkg, plain := selector.X.(*ast.Ident)
			isTesting = plain && s.imports[pkg.Name] == "testing"
		}
		for _, name := range field.Names {
			names[name.Name] = isTesting
		}
	}
	return names
}
