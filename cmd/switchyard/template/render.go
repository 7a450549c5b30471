package template

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"

	"go.yaml.in/yaml/v3"

	"github.com/switchyard-dl/switchyard/libs/event"
)

const (
	bodyName = "job"
	// mark begins what stands for a value while the job is text: a word that YAML takes as it is wherever it comes.
	mark = "QValueOfAParameterQ"
	// placeName is the function that every action of a template ends in.
	placeName = "_place"
)

// tree parses the body.
func (t *Template) tree() (*parse.Tree, error) {
	tmpl, err := template.New(bodyName).Funcs(template.FuncMap{placeName: func(any) string { return "" }}).Parse(t.body)
	if err != nil {
		return nil, err
	}
	if defined := tmpl.Templates(); len(defined) > 1 {
		return nil, fmt.Errorf("template: %s:1: a template cannot define others", bodyName)
	}
	if tmpl.Tree == nil { // a body without anything
		return &parse.Tree{Root: &parse.ListNode{}}, nil
	}
	return tmpl.Tree, nil
}

// Settings reads NAME=VALUE pairs and checks them against the parameters. It gives the value of each parameter, or all problems.
func (t *Template) Settings(pairs []string) (map[string]any, []Problem) {
	p := &problems{}
	values := map[string]any{}
	for _, pair := range pairs {
		name, text, ok := strings.Cut(pair, "=")
		par, known := t.find(name)
		_, twice := values[name]
		switch {
		case !ok:
			p.add(0, "%.80q: want NAME=VALUE", pair)
		case !known:
			p.add(0, "%.80s: no such parameter%s", name, near(name, t.names()))
		case twice:
			p.add(0, "parameter %s is set twice", name)
		default:
			value, fault := par.accept(text)
			if fault == "" && par.Required && value == "" {
				fault = "it is required, and set to nothing"
			}
			if fault != "" {
				p.add(0, "parameter %s: %s", name, fault)
			}
			values[name] = value
		}
	}
	for i := range t.Parameters {
		par := &t.Parameters[i]
		if _, set := values[par.Name]; set {
			continue
		}
		switch {
		case par.Required:
			p.add(0, "parameter %s (%s) is missing%s", par.Name, par.Type, doc(par))
		case par.Default != nil:
			values[par.Name] = par.Default
		default:
			values[par.Name] = par.zero()
		}
	}
	if all := p.sorted(); len(all) > 0 {
		return nil, all
	}
	return values, nil
}

func doc(par *Parameter) string {
	if par.Doc == "" {
		return ""
	}
	return ": " + par.Doc
}

// Render makes the job file, in YAML. While the job is text, words that mean nothing to YAML stand for the values; they are put in when the scalars, and
// thereby all that can be told apart in the file, are known.
func (t *Template) Render(values map[string]any) ([]byte, []Problem) {
	tree, err := t.tree()
	if err != nil {
		return nil, []Problem{t.located(err)}
	}
	var placed []any
	place := func(v any) string {
		placed = append(placed, v)
		return fmt.Sprintf("%s%dQ", mark, len(placed)-1)
	}
	walk(tree.Root, func(n parse.Node) {
		if action, ok := n.(*parse.ActionNode); ok && len(action.Pipe.Decl) == 0 {
			action.Pipe.Cmds = append(action.Pipe.Cmds, &parse.CommandNode{NodeType: parse.NodeCommand, Pos: action.Pos, Args: []parse.Node{
				parse.NewIdentifier(placeName).SetPos(action.Pos).SetTree(tree),
			}})
		}
	})
	out := &bounded{left: event.MaxBodyBytes}
	tmpl, err := template.New(bodyName).Option("missingkey=error").Funcs(template.FuncMap{placeName: place}).AddParseTree(bodyName, tree)
	if err == nil {
		err = tmpl.Execute(out, values)
	}
	if err != nil {
		return nil, []Problem{t.located(err)}
	}
	return t.fill(out.Bytes(), placed)
}

// fill puts the values into the scalars of the rendered text. Lines are those of that text, so none is told.
func (t *Template) fill(text []byte, placed []any) ([]byte, []Problem) {
	var document yaml.Node
	p := &problems{}
	if err := yaml.Unmarshal(text, &document); err != nil {
		wrong(err, 0, p)
		for i := range p.all {
			p.all[i] = Problem{Message: fmt.Sprintf("the rendered job is no YAML: %s", p.all[i])}
		}
		return nil, p.all
	}
	put(&document, placed, p)
	if len(p.all) > 0 {
		return nil, p.all
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	const indent = 2
	encoder.SetIndent(indent)
	if err := encoder.Encode(&document); err != nil {
		return nil, []Problem{{Message: fmt.Sprintf("the rendered job is no YAML: %v", err)}}
	}
	return out.Bytes(), nil
}

// put fills one node and those below it. Comments are left out: what stands in them is text alone, and may have had a value in it.
func put(n *yaml.Node, placed []any, p *problems) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	if n.Kind == yaml.AliasNode {
		return // it is filled where it is defined
	}
	if strings.Contains(n.Anchor, mark) || strings.Contains(n.Tag, mark) {
		p.add(0, "a parameter stands where only a value or a part of one may stand")
	}
	for _, child := range n.Content {
		put(child, placed, p)
	}
	if n.Kind != yaml.ScalarNode || !strings.Contains(n.Value, mark) {
		return
	}
	text, whole := insert(n.Value, placed)
	plain := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
	if !plain || whole == nil {
		whole = text
	}
	anchor := n.Anchor
	if err := n.Encode(whole); err != nil {
		p.add(0, "put in %v: %v", whole, err)
	}
	n.Anchor = anchor
}

// insert puts the values into a text. Where the text is one of them and nothing else, it gives that, too.
func insert(text string, placed []any) (filled string, whole any) {
	var b strings.Builder
	for rest := text; ; {
		before, after, found := strings.Cut(rest, mark)
		b.WriteString(before)
		if !found {
			return b.String(), whole
		}
		number, behind, _ := strings.Cut(after, "Q")
		at, err := strconv.Atoi(number)
		if err != nil || at < 0 || at >= len(placed) {
			return text, nil // no action wrote that
		}
		fmt.Fprint(&b, placed[at])
		if before == "" && behind == "" && rest == text {
			whole = placed[at]
		}
		rest = behind
	}
}
