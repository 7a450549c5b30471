package upload

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// IgnoreFile names, in the folder that is packed, what stays behind, in the words of .gitignore: a pattern a line, with
// *, ?, [..] and **; a / at its end means folders alone, any other / means the path from this folder on; ! takes a
// pattern back; # begins a comment. What lies in an ignored folder cannot be taken back.
const IgnoreFile = ".switchyardignore"

// usual is what no job needs.
const usual = ".git/\n__pycache__/\n.venv/\n"

// rules are the patterns in their order: the last one that matches decides.
type rules []rule

type rule struct {
	form        *regexp.Regexp
	keep        bool
	foldersOnly bool
}

func readIgnoreFile(dir string) (rules, error) {
	text, err := os.ReadFile(filepath.Join(dir, IgnoreFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read %s: %w", IgnoreFile, err)
	}
	all, _ := parseRules(usual)
	own, err := parseRules(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, IgnoreFile), err)
	}
	return append(all, own...), nil
}

func parseRules(text string) (rules, error) {
	var all rules
	n := 0
	for line := range strings.Lines(text) {
		n++
		pattern := strings.TrimRight(line, " \t\r\n")
		if pattern == "" || strings.HasPrefix(pattern, "#") {
			continue
		}
		var r rule
		pattern, r.keep = strings.CutPrefix(pattern, "!")
		pattern, r.foldersOnly = strings.CutSuffix(pattern, "/")
		form, err := expression(pattern)
		if err != nil {
			return nil, fmt.Errorf("line %d: %q is no pattern", n, strings.TrimSpace(line))
		}
		r.form = form
		all = append(all, r)
	}
	return all, nil
}

// expression translates a pattern.
func expression(pattern string) (*regexp.Regexp, error) {
	var b strings.Builder
	b.WriteString("^")
	if !strings.Contains(pattern, "/") {
		b.WriteString("(?:.*/)?") // a name alone matches at any depth
	}
	rest := strings.TrimPrefix(pattern, "/")
	for rest != "" {
		switch class := classAt(rest); {
		case strings.HasPrefix(rest, "**/"):
			b.WriteString("(?:.*/)?")
			rest = rest[3:]
		case rest == "**":
			b.WriteString(".*")
			rest = ""
		case rest[0] == '*':
			b.WriteString("[^/]*")
			rest = rest[1:]
		case rest[0] == '?':
			b.WriteString("[^/]")
			rest = rest[1:]
		case class != "":
			b.WriteString(strings.Replace(class, "[!", "[^", 1))
			rest = rest[len(class):]
		case rest[0] == '\\' && len(rest) > 1:
			b.WriteString(regexp.QuoteMeta(rest[1:2]))
			rest = rest[2:]
		default:
			b.WriteString(regexp.QuoteMeta(rest[:1]))
			rest = rest[1:]
		}
	}
	b.WriteString("$")
	return regexp.Compile(b.String())
}

// classAt returns the class of characters, as [a-z], with which a pattern begins, or "".
func classAt(pattern string) string {
	if pattern[0] != '[' {
		return ""
	}
	end := strings.IndexByte(pattern[1:], ']')
	if end < 1 {
		return ""
	}
	return pattern[:end+2]
}

// match reports whether a path, relative to the folder, stays behind.
func (all rules) match(name string, folder bool) bool {
	ignored := false
	for _, r := range all {
		if (folder || !r.foldersOnly) && r.form.MatchString(name) {
			ignored = !r.keep
		}
	}
	return ignored
}
