// Package template turns a job template and settings into a job file. A template is YAML in two documents: first its
// purpose and its parameters, then the job, in which {{ }} are actions of text/template. Everything is checked before
// anything is rendered, and a value can only become the scalar, or the part of a scalar, in whose place it stands. The
// meaning of the job is not checked here.
package template

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"text/template/parse"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/strict"
)

// Template is a valid job template.
type Template struct {
	// Description is one line on the purpose of the template.
	Description string
	// Parameters are in the order of the file.
	Parameters []Parameter

	// body is the text of the second document and line its first line.
	body string
	line int32
}

// separator ends the header.
const separator = "---"

// Parse reads a template; for a faulty one it returns all problems, by line.
func Parse(text []byte) (*Template, strict.Problems) {
	t := &Template{}
	header, body, line := split(string(text))
	if line == 0 {
		return nil, strict.Problems{{Message: "no line --- between the parameters and the job"}}
	}
	t.body, t.line = body, line
	p := newProblems()
	t.readHeader(header, p)
	t.readBody(p)
	if all := p.Problems(); len(all) > 0 {
		return nil, all
	}
	return t, nil
}

// split returns the two documents and the line where the second begins; 0 without a second.
func split(text string) (header, body string, line int32) {
	at := 0
	for l := range strings.Lines(text) {
		line++
		before := text[:at]
		at += len(l)
		if strings.TrimRight(l, " \t\r\n") == separator && strings.TrimSpace(before) != "" {
			return before, text[at:], line + 1
		}
	}
	return text, "", 0
}

// problems collects errors.
type problems struct{ *strict.Reader }

func newProblems() *problems {
	return &problems{strict.New(strict.Options{MaxBytes: event.MaxBodyBytes, Words: true})}
}

func (p *problems) add(line int32, hint, format string, args ...any) {
	p.AddAt(strict.Position{Line: line}, strict.CodeValue, "", hint, format, args...)
}

// find returns a parameter by its name.
func (t *Template) find(name string) (*Parameter, bool) {
	i := slices.IndexFunc(t.Parameters, func(p Parameter) bool { return p.Name == name })
	if i < 0 {
		return nil, false
	}
	return &t.Parameters[i], true
}

func (t *Template) names() []string {
	names := make([]string, len(t.Parameters))
	for i, p := range t.Parameters {
		names[i] = p.Name
	}
	return names
}

// readBody checks that the job parses as a template and uses only declared parameters.
func (t *Template) readBody(p *problems) {
	tree, err := t.tree()
	if err != nil {
		line, message := t.located(err)
		p.add(line, "", "%s", message)
		return
	}
	if strings.Contains(t.body, mark) {
		p.add(t.line, "", "the job holds %s, which stands for values while it is rendered", mark)
	}
	walk(tree.Root, func(n parse.Node) {
		line := t.line + int32(strings.Count(t.body[:n.Position()], "\n"))
		switch n := n.(type) {
		case *parse.TemplateNode:
			p.add(line, "", "a template cannot take in others")
		case *parse.FieldNode:
			t.used(n.Ident, line, p)
		case *parse.VariableNode:
			if n.Ident[0] == "$" {
				t.used(n.Ident[1:], line, p)
			}
		}
	})
}

// used checks a name in the body.
func (t *Template) used(path []string, line int32, p *problems) {
	if len(path) == 0 {
		return
	}
	if _, declared := t.find(path[0]); !declared {
		p.add(line, strict.Near(path[0], t.names()), "parameter %s is not declared", path[0])
	}
}

// located takes the line out of an error of text/template, "template: NAME:LINE: ..", and counts it from the beginning
// of the file.
func (t *Template) located(err error) (line int32, message string) {
	words := strings.TrimPrefix(err.Error(), "template: ")
	rest, named := strings.CutPrefix(words, bodyName+":")
	number, message, found := strings.Cut(rest, ":")
	at := int32(0)
	if _, scanErr := fmt.Sscanf(number, "%d", &at); !named || !found || scanErr != nil {
		return t.line, words
	}
	message = strings.TrimLeft(message, "0123456789: ") // a column
	return t.line + at - 1, message
}

// walk visits the nodes of a template.
func walk(n parse.Node, visit func(parse.Node)) {
	visit(n)
	all := func(nodes ...parse.Node) {
		for _, child := range nodes {
			walk(child, visit)
		}
	}
	branch := func(b *parse.BranchNode) {
		all(b.Pipe, b.List)
		if b.ElseList != nil {
			all(b.ElseList)
		}
	}
	switch n := n.(type) {
	case *parse.ListNode:
		all(n.Nodes...)
	case *parse.ActionNode:
		all(n.Pipe)
	case *parse.PipeNode:
		for _, c := range n.Cmds {
			all(c)
		}
	case *parse.CommandNode:
		all(n.Args...)
	case *parse.ChainNode:
		all(n.Node)
	case *parse.IfNode:
		branch(&n.BranchNode)
	case *parse.WithNode:
		branch(&n.BranchNode)
	case *parse.RangeNode:
		branch(&n.BranchNode)
	}
}

// bounded is a writer that refuses more than the size of a job file.
type bounded struct {
	bytes.Buffer
	left int
}

// Write keeps p, unless that is too much.
func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, fmt.Errorf("render job: longer than any job file may be")
	}
	return b.Buffer.Write(p)
}
