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
	"github.com/switchyard-dl/switchyard/libs/strict"
)

const (
	bodyName = "job"
	// mark begins the word that stands for a value while the job is text: YAML accepts it unchanged in any place.
	mark = "QValueOfAParameterQ"
	// placeName is the function in which every action of a template ends.
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

// Settings reads NAME=VALUE pairs and checks them against the parameters. It returns the value of each parameter, or
// all problems.
func (t *Template) Settings(pairs []string) (map[string]any, strict.Problems) {
	p := newProblems()
	values := map[string]any{}
	for _, pair := range pairs {
		name, text, ok := strings.Cut(pair, "=")
		par, known := t.find(name)
		_, twice := values[name]
		switch {
		case !ok:
			p.add(0, "", "%.80q: want NAME=VALUE", pair)
		case !known:
			p.add(0, strict.Near(name, t.names()), "%.80s: no such parameter", name)
		case twice:
			p.add(0, "", "parameter %s is set twice", name)
		default:
			value, wrong := par.accept(text)
			if wrong.message == "" && par.Required && value == "" {
				wrong.message = "it is required, and set to nothing"
			}
			if wrong.message != "" {
				p.add(0, wrong.hint, "parameter %s: %s", name, wrong.message)
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
			p.add(0, "", "parameter %s (%s) is missing%s", par.Name, par.Type, doc(par))
		case par.Default != nil:
			values[par.Name] = par.Default
		default:
			values[par.Name] = par.zero()
		}
	}
	if all := p.Problems(); len(all) > 0 {
		return nil, all
	}
	return values, nil
}

// broken converts an error of text/template into a problem.
func (t *Template) broken(err error) strict.Problems {
	line, message := t.located(err)
	return strict.Problems{{Code: strict.CodeValue, Line: int(line), Message: message}}
}

func doc(par *Parameter) string {
	if par.Doc == "" {
		return ""
	}
	return ": " + par.Doc
}

// Render returns the job file, in YAML. While the job is text, words without meaning for YAML stand for the values.
// They are replaced once the scalars of the file, and thereby its whole structure, are known.
func (t *Template) Render(values map[string]any) ([]byte, strict.Problems) {
	tree, err := t.tree()
	if err != nil {
		return nil, t.broken(err)
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
	tmpl, err := template.New(bodyName).Option("missingkey=error").Funcs(template.FuncMap{placeName: place}).AddParseTree(bodyName,
		tree)
	if err == nil {
		err = tmpl.Execute(out, values)
	}
	if err != nil {
		return nil, t.broken(err)
	}
	return t.fill(out.Bytes(), placed)
}

// fill puts the values into the scalars of the rendered text. It reports no line numbers, which would be those of that
// text.
func (t *Template) fill(text []byte, placed []any) ([]byte, strict.Problems) {
	var document yaml.Node
	p := newProblems()
	if err := yaml.Unmarshal(text, &document); err != nil {
		p.AddYAML(err)
		all := p.Problems()
		for i := range all { // the lines are those of the rendered text, which no user has seen
			all[i] = strict.Problem{Code: strict.CodeYAML, Message: "the rendered job is " + all[i].Message}
		}
		return nil, all
	}
	put(&document, placed, p)
	if all := p.Problems(); len(all) > 0 {
		return nil, all
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	const indent = 2
	encoder.SetIndent(indent)
	if err := encoder.Encode(&document); err != nil {
		return nil, strict.Problems{{Message: fmt.Sprintf("the rendered job is no YAML: %v", err)}}
	}
	return out.Bytes(), nil
}

// put fills one node and those below it. It drops comments: they are plain text, and may have contained a value.
func put(n *yaml.Node, placed []any, p *problems) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	if n.Kind == yaml.AliasNode {
		return // it is filled where it is defined
	}
	if strings.Contains(n.Anchor, mark) || strings.Contains(n.Tag, mark) {
		p.add(0, "", "a parameter stands where only a value or a part of one may stand")
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
	if value, isText := whole.(string); isText {
		n.SetString(value)
		n.Style = textStyle(value)
	} else if err := n.Encode(whole); err != nil {
		p.add(0, "", "put in %v: %v", whole, err)
	}
	n.Anchor = anchor
}

// textStyle quotes a text with tabs: YAML cannot read a block that begins with a tab. The encoder chooses the style of
// other texts.
func textStyle(text string) yaml.Style {
	if strings.Contains(text, "\t") {
		return yaml.DoubleQuotedStyle
	}
	return 0
}

// insert puts the values into a text. If the text is exactly one of them, it also returns that value.
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
