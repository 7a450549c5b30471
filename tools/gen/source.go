package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// module is the import path of the code that is documented.
const module = "github.com/switchyard-dl/switchyard"

// source is what reflection does not tell: the comments, and the constants of each named type.
type source struct {
	comments map[string]string   // by "import path.Type" and "import path.Type.Field"
	values   map[string][]string // of a string type, by "import path.Type"
}

// readSource parses the packages whose types cross the wire.
func readSource(root string) (*source, error) {
	src := &source{comments: map[string]string{}, values: map[string][]string{}}
	for _, dir := range []string{"libs/unit", "libs/train", "libs/rpc", "libs/event", "libs/curve", "libs/contract", "libs/access", "libs/fabric", "services/web/explain", "services/web/trainingjob", "services/web/view", "services/web/api"} {
		entries, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", dir, err)
		}
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, dir, e.Name()), nil, parser.ParseComments)
			if err != nil {
				return nil, fmt.Errorf("parse %s: %w", dir, err)
			}
			src.add(path.Join(module, dir), file)
		}
	}
	return src, nil
}

func (src *source) add(pkg string, file *ast.File) {
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range decl.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				doc := s.Doc
				if doc == nil {
					doc = decl.Doc
				}
				src.addType(pkg+"."+s.Name.Name, doc, s.Type)
			case *ast.ValueSpec:
				if decl.Tok == token.CONST {
					src.addConst(pkg, s)
				}
			}
		}
	}
}

func (src *source) addType(name string, doc *ast.CommentGroup, body ast.Expr) {
	src.comments[name] = oneLine(doc.Text())
	structure, ok := body.(*ast.StructType)
	if !ok {
		return
	}
	// A comment may stand for the fields after it, too, where it names them.
	above := ""
	for _, f := range structure.Fields.List {
		text := oneLine(f.Doc.Text())
		if text == "" {
			text = oneLine(f.Comment.Text())
		}
		if text != "" {
			above = text
		}
		for _, n := range f.Names {
			own := text
			if own == "" && wholeWord(n.Name).MatchString(above) {
				own = above
			}
			src.comments[name+"."+n.Name] = own
		}
	}
}

func (src *source) addConst(pkg string, s *ast.ValueSpec) {
	typ, ok := s.Type.(*ast.Ident)
	if !ok {
		return
	}
	for _, v := range s.Values {
		literal, ok := v.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			continue
		}
		const placeholder = "*" // of the table of transitions, never on the wire
		if text, err := strconv.Unquote(literal.Value); err == nil && text != placeholder {
			src.values[pkg+"."+typ.Name] = append(src.values[pkg+"."+typ.Name], text)
		}
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func wholeWord(s string) *regexp.Regexp {
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(s) + `\b`)
}

// typeName is the key of a type in comments and values.
func typeName(t reflect.Type) string {
	name, _, _ := strings.Cut(t.Name(), "[") // a generic type is explained once
	return t.PkgPath() + "." + name
}

// enum are the constants of a named string type.
func (src *source) enum(t reflect.Type) []string { return src.values[typeName(t)] }

// about is the comment of a type (field ""), or of a field, with the names as they are on the wire.
func (src *source) about(t reflect.Type, field string) string {
	key := typeName(t)
	if field != "" {
		key += "." + field
	}
	text := src.comments[key]
	if t.Kind() != reflect.Struct {
		return text
	}
	for f := range t.Fields() {
		if wire := wireName(f); wire != "" && len(f.Name) > 1 {
			text = wholeWord(f.Name).ReplaceAllString(text, wire)
		}
	}
	if field == "" {
		return text
	}
	f, _ := t.FieldByName(field)
	if text == "" {
		return keyWords(t, wireName(f))
	}
	text = withoutKey(text, wireName(f))
	if !strings.Contains(text, ". ") {
		text = strings.TrimSuffix(text, ".")
	}
	return text
}

// withoutKey drops the key at the beginning of its explanation, which stands beside it, unless the sentence goes on
// with another key.
func withoutKey(text, key string) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(text, key+":"), key+" ")
	if strings.HasPrefix(rest, "and ") {
		return text
	}
	rest = strings.TrimPrefix(strings.TrimSpace(rest), "is ")
	return strings.TrimPrefix(rest, "are ")
}

// wireName is the key of a field in JSON; "" for embedded ones.
func wireName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// optional says whether a key may be left out.
func optional(f reflect.StructField) bool {
	_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	return strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
}

// unitOf is the unit that a key's name tells.
func unitOf(name string) string {
	for _, u := range [][2]string{{"_seconds", "s"}, {"_hours", "h"}, {"_bytes", "bytes"}, {"_mib", "MiB"}, {"_uj", "µJ"}, {"_uw", "µW"}} {
		if strings.HasSuffix(name, u[0]) {
			return u[1]
		}
	}
	return ""
}
