// Package template turns a job template and settings into a job file. A template is YAML in two documents: first what it is for and its parameters, then the
// job, in which {{ }} are actions of text/template. Everything is checked before anything is rendered, and a value can become nothing but the scalar, or the
// part of one, in whose place it stands. What the job means is not checked here.
package template

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/template/parse"
)

// Problem is what is wrong with a template or with what was set.
type Problem struct {
	// Line is that of the template, from 1 on; 0 where it has none.
	Line    int
	Message string
}

// String is the problem in words.
func (p Problem) String() string {
	if p.Line == 0 {
		return p.Message
	}
	return fmt.Sprintf("line %d: %s", p.Line, p.Message)
}

// Template is a job template that was found to be sound.
type Template struct {
	// Description says in a line what the template is for.
	Description string
	// Parameters are in the order of the file.
	Parameters []Parameter

	// body is the text of the second document and line the one where it begins.
	body string
	line int
}

// separator ends the header.
const separator = "---"

// Parse reads a template; of a faulty one it gives all problems, by line.
func Parse(text []byte) (*Template, []Problem) {
	t := &Template{}
	header, body, line := split(string(text))
	if line == 0 {
		return nil, []Problem{{Message: "no line --- between the parameters and the job"}}
	}
	t.body, t.line = body, line
	p := &problems{}
	t.readHeader(header, p)
	t.readBody(p)
	if all := p.sorted(); len(all) > 0 {
		return nil, all
	}
	return t, nil
}

// split gives the two documents and the line where the second begins; 0 where there is none.
func split(text string) (header, body string, line int) {
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

// problems collects what is wrong.
type problems struct{ all []Problem }

func (p *problems) add(line int, format string, args ...any) {
	p.all = append(p.all, Problem{line, fmt.Sprintf(format, args...)})
}

func (p *problems) sorted() []Problem {
	slices.SortStableFunc(p.all, func(x, y Problem) int { return cmp.Compare(x.Line, y.Line) })
	return p.all
}

// find gives a parameter by its name.
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

// readBody checks that the job parses as a template and uses declared parameters alone.
func (t *Template) readBody(p *problems) {
	tree, err := t.tree()
	if err != nil {
		p.all = append(p.all, t.located(err))
		return
	}
	if strings.Contains(t.body, mark) {
		p.add(t.line, "the job holds %s, which stands for values while it is rendered", mark)
	}
	walk(tree.Root, func(n parse.Node) {
		line := t.line + strings.Count(t.body[:n.Position()], "\n")
		switch n := n.(type) {
		case *parse.TemplateNode:
			p.add(line, "a template cannot take in others")
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
func (t *Template) used(path []string, line int, p *problems) {
	if len(path) == 0 {
		return
	}
	if _, declared := t.find(path[0]); !declared {
		p.add(line, "parameter %s is not declared%s", path[0], near(path[0], t.names()))
	}
}

// located takes the line out of an error of text/template, "template: NAME:LINE: ..", and counts it from the beginning of the file.
func (t *Template) located(err error) Problem {
	words := strings.TrimPrefix(err.Error(), "template: ")
	rest, named := strings.CutPrefix(words, bodyName+":")
	number, message, found := strings.Cut(rest, ":")
	line := 0
	if _, scanErr := fmt.Sscanf(number, "%d", &line); !named || !found || scanErr != nil {
		return Problem{t.line, words}
	}
	message = strings.TrimLeft(message, "0123456789: ") // a column
	return Problem{t.line + line - 1, message}
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

// bounded is a writer that refuses more than a job file may have.
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
