// Command prosecheck holds comments and sentences in Go files and the text of Markdown files to plain English. It
// reports comment lines wider than 120 columns and the habits in rules.txt, each with a suggestion. It does not check
// grammar.
package main

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/switchyard-dl/switchyard/tools/walk"
)

const widest = 120

//go:embed rules.txt
var rules string

func main() {
	root := flag.String("root", ".", "the folder to check")
	flag.Parse()
	findings, err := check(*root)
	walk.Exit("prosecheck", findings, err)
}

// check returns the findings under root.
func check(root string) ([]string, error) {
	var findings []string
	err := walk.Files(root, func(path, rel string) error {
		found, err := checkFile(path, rel)
		findings = append(findings, found...)
		return err
	})
	slices.Sort(findings)
	return findings, err
}

// checkFile returns the findings in a Go or Markdown file, and none in others.
func checkFile(path, name string) ([]string, error) {
	markdown := strings.HasSuffix(name, ".md")
	if !markdown && !strings.HasSuffix(name, ".go") {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if markdown {
		return checkText(name, 1, plainMarkdown(string(text))), nil
	}
	return checkGo(name, text)
}

// checkGo checks the comments of a Go file that is not generated and, outside of tests, the sentences in its strings.
func checkGo(name string, text []byte) ([]string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(file) {
		return nil, err
	}
	var findings []string
	lines := bytes.Split(text, []byte("\n"))
	for _, group := range file.Comments {
		var words strings.Builder
		first, last := files.Position(group.Pos()).Line, files.Position(group.End()).Line
		for i, line := range lines[first-1 : last] {
			if width := utf8.RuneCount(line); width > widest && !bytes.Contains(line, []byte("//nolint")) {
				findings = append(findings, fmt.Sprintf("%s:%d: comment is %d columns wide: wrap it at %d", name, first+i, width, widest))
			}
			_, after, _ := bytes.Cut(line, []byte("//"))
			words.WriteString(string(bytes.TrimSpace(after)) + "\n")
		}
		findings = append(findings, checkText(name, first, words.String())...)
	}
	ast.Inspect(file, func(node ast.Node) bool {
		literal, ok := node.(*ast.BasicLit)
		if ok && len(strings.Fields(literal.Value)) > 3 && !strings.HasSuffix(name, "_test.go") {
			findings = append(findings, checkText(name, files.Position(literal.Pos()).Line, literal.Value)...)
		}
		return true
	})
	return findings, nil
}

// checkText applies the rules to text that begins at the given line of a file. A line break counts as a space.
func checkText(name string, line int, text string) []string {
	var findings []string
	flat := strings.ReplaceAll(text, "\n", " ")
	for rule := range strings.Lines(rules) {
		pattern, instead, ok := strings.Cut(strings.TrimSpace(rule), " => ")
		if !ok {
			continue
		}
		for _, at := range regexp.MustCompile(pattern).FindAllStringIndex(flat, -1) {
			where := line + strings.Count(text[:at[0]], "\n")
			findings = append(findings, fmt.Sprintf("%s:%d: %q: %s", name, where, strings.TrimSpace(flat[at[0]:at[1]]), instead))
		}
	}
	return findings
}

// plainMarkdown blanks out code, links' targets and HTML, keeping the lines.
func plainMarkdown(text string) string {
	code := regexp.MustCompile("(?s)```.*?```|`[^`\n]*`|\\]\\([^)\n]*\\)|<[^>\n]*>|(?m:^    [^\n]*$)")
	return code.ReplaceAllStringFunc(text, func(match string) string { return "#" + strings.Repeat("\n", strings.Count(match, "\n")) })
}
