package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// addPython adds the tests of one Python file that may skip, as "folder/file.Class.test"; a skip outside a test method
// (a decorated class, setUp) counts for the class, and one outside a class for the whole file. A triple-quoted string
// that shows a skip counts as a skip.
func addPython(found map[string]string, path, rel string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read Python test: %w", err)
	}
	skip := regexp.MustCompile(`\bskip(If|Unless|Test)?\s*\(|\bSkipTest\b|@(unittest\.|pytest\.mark\.)?skip\b`)
	heading := regexp.MustCompile(`^(\s*)(?:async\s+)?(class|def)\s+(\w+)`)
	imports := regexp.MustCompile(`^\s*(import|from) `)
	at := pythonPlace{module: strings.TrimSuffix(rel, ".py")}
	decorator := ""
	for i, line := range strings.Split(string(text), "\n") {
		code, _, _ := strings.Cut(line, "#")
		where := fmt.Sprintf("%s:%d", rel, i+1)
		if m := heading.FindStringSubmatch(code); m != nil {
			at.enter(m[1], m[2], m[3])
			if decorator != "" {
				found[at.name()] = decorator
			}
			decorator = ""
			continue
		}
		if !skip.MatchString(code) || imports.MatchString(code) {
			continue
		}
		if strings.HasPrefix(strings.TrimSpace(code), "@") {
			decorator = where
			continue
		}
		if code[0] != ' ' && code[0] != '\t' {
			at.class, at.method = "", ""
		}
		if found[at.name()] == "" {
			found[at.name()] = where
		}
	}
	return nil
}

// pythonPlace is the test that a line belongs to; class and method are empty outside of one.
type pythonPlace struct{ module, class, method string }

// enter moves to the class or function that a heading begins.
func (p *pythonPlace) enter(indent, keyword, name string) {
	switch {
	case keyword == "class" && indent == "":
		p.class, p.method = name, ""
	case indent == "":
		p.class, p.method = "", ""
	case keyword == "def" && p.class != "" && len(indent) <= 4:
		p.method = ""
		if strings.HasPrefix(name, "test") {
			p.method = name
		}
	}
}

func (p *pythonPlace) name() string {
	name := p.module
	if p.class != "" {
		name += "." + p.class
	}
	if p.method != "" {
		name += "." + p.method
	}
	return name
}
