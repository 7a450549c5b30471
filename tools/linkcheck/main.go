// Command linkcheck keeps the references in Markdown files true: a relative link leads to a file and, if it names one,
// to a heading there; a link with the name of a test leads to the file that has it; a table with the column "shown by"
// has no empty row there; a path to code and a key of switchyard.yaml exist. In Go files it checks the names of pages
// under docs. With -bin it runs the programs in that folder with --help, and checks that the commands and flags in the
// pages exist.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/switchyard-dl/switchyard/tools/walk"
)

func main() {
	root := flag.String("root", ".", "the repository")
	bin := flag.String("bin", "", "the folder of the programs; without it commands are not checked")
	flag.Parse()
	findings, err := check(*root)
	if err == nil && *bin != "" {
		var commands []string
		commands, err = checkCommands(context.Background(), *root, *bin)
		findings = append(findings, commands...)
	}
	walk.Exit("linkcheck", findings, err)
}

// check returns one line for each dead reference under root.
func check(root string) ([]string, error) {
	var findings []string
	settings := settingsIn(filepath.Join(root, "docs/configuration.md"))
	err := walk.Files(root, func(path, rel string) error {
		dead := deadInPage
		switch {
		case rel == "docs/skips.md", strings.HasSuffix(rel, "_test.go"): // skipcheck holds the names of tests in the page
			return nil
		case strings.HasSuffix(rel, ".go"):
			dead = deadInCode
		case !strings.HasSuffix(rel, ".md"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		shown := false
		for i, line := range strings.Split(string(text), "\n") {
			found := dead(root, path, line, settings)
			if shown = strings.HasPrefix(line, "|") && (shown || strings.HasSuffix(line, "| shown by |")); shown && strings.HasSuffix(line, "|  |") {
				found = append(found, "nothing shows it")
			}
			for _, what := range found {
				findings = append(findings, fmt.Sprintf("%s:%d: %s", path, i+1, what))
			}
		}
		return nil
	})
	slices.Sort(findings)
	return findings, err
}

// deadInCode returns the pages that a line of a Go file names and that do not exist.
func deadInCode(root, _, line string, _ map[string]bool) []string {
	var dead []string
	for _, page := range pages.FindAllString(line, -1) {
		if !exists(root, page) {
			dead = append(dead, page+" does not exist")
		}
	}
	return dead
}

// deadInPage returns what is dead among the references in one line of the Markdown file at path.
func deadInPage(root, path, line string, settings map[string]bool) []string {
	var dead []string
	for _, match := range links.FindAllStringSubmatch(line, -1) {
		file, heading, _ := strings.Cut(match[2], "#")
		target := path
		if file != "" {
			target = filepath.Join(filepath.Dir(path), file)
		}
		switch {
		case strings.Contains(file, "://") || strings.HasPrefix(file, "mailto:"):
		case !exists(target, ""):
			dead = append(dead, "link to "+match[2]+": no such file")
		case heading != "" && strings.HasSuffix(target, ".md") && !slices.Contains(headings(target), heading):
			dead = append(dead, "link to "+match[2]+": no such heading")
		default:
			dead = append(dead, missingTests(match[1], target)...)
		}
	}
	for _, match := range paths.FindAllStringSubmatch(line, -1) {
		if file := strings.TrimRight(match[1], "./"); !exists(root, file) {
			dead = append(dead, file+" does not exist")
		}
	}
	for _, match := range setting.FindAllStringSubmatch(line, -1) {
		if !settings[match[1]] {
			dead = append(dead, "no setting is called "+match[1])
		}
	}
	return dead
}

var (
	links = regexp.MustCompile(`(?:\[([^\][]*))?\]\(([^)\s]+)\)`)
	// The name of a test, as the text of a link.
	test = regexp.MustCompile(`^(?:(?:Test|Benchmark|Fuzz)[A-Z]|test_)\w*$`)
	// A path from the root of the repository in running text, in code or in a command.
	paths = regexp.MustCompile("(?:^|[\\s`(=])(?:\\./)?((?:cmd|deploy|docs|examples|lab|libs|services|test|tools)/[\\w./*-]+)")
	pages = regexp.MustCompile(`\bdocs/[\w/-]+\.(?:md|html|svg)\b`)
	// A key of switchyard.yaml. The section energy is left out, since jobs have keys of that name.
	setting = regexp.MustCompile("`((?:bus|data|process|admission|planner|profiler|executor|nodeagent)\\.[a-z_]+)[`:]")
)

// missingTests returns which tests in the text of a link its file does not have.
func missingTests(text, file string) []string {
	var missing []string
	for name := range strings.SplitSeq(text, ", ") {
		if !test.MatchString(name) {
			continue
		}
		code, err := os.ReadFile(file)
		if err != nil || !regexp.MustCompile(`(?m)^\s*(?:func|def) `+name+`\(`).Match(code) {
			missing = append(missing, "no test "+name+" in "+filepath.Base(file))
		}
	}
	return missing
}

// settingsIn returns the settings that the page of the configuration lists, as section.key.
func settingsIn(page string) map[string]bool {
	settings, section := map[string]bool{}, ""
	text, err := os.ReadFile(page)
	if err != nil {
		return settings
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			section = name
		}
		if key, ok := strings.CutPrefix(line, "| `"); ok {
			key, _, _ = strings.Cut(key, "`")
			settings[section+"."+key] = true
		}
	}
	return settings
}

// exists reports whether a file, a folder or something that matches the pattern is at path under root.
func exists(root, path string) bool {
	found, err := filepath.Glob(filepath.Join(root, path))
	return err == nil && len(found) > 0
}

// headings returns the anchors of a Markdown file's headings as GitHub makes them.
func headings(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var anchors []string
	code := false
	for line := range strings.SplitSeq(string(text), "\n") {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		if hashes := strings.TrimLeft(line, "#"); !code && hashes != line && strings.HasPrefix(hashes, " ") {
			anchors = append(anchors, anchor(strings.TrimSpace(hashes)))
		}
	}
	return anchors
}

// anchor returns a heading in lower case, its spaces as hyphens, without other punctuation.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}
