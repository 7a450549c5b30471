package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// addPython adds the tests of one Python file that may skip, as "folder/file.Class.test"; a skip outside a test method
// (a decorated class, setUp) counts for the class, and one outside a class for the whole file. A triple-quoted string
// that shows a skip is taken for one.
func addPython(found map[string]string, path, rel string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read Python test: %w", err)
	}
	skip := regexp.MustCompile(`\bskip(If|Unless|Test)?\s*\(|\bSkipTest\b|@(unittest\.|pytest\.mark\.)?skip\b`)
	heading := regexp.MustCompile(`^(\s*)(?:async\s+)?(class|def)\s+(\w+)`)
	module := strings.TrimSuffix(rel, ".py")
	var class, method, decorator string
	for i, line := range strings.Split(string(text), "\n") {
		code, _, _ := strings.Cut(line, "#")
		at := fmt.Sprintf("%s:%d", rel, i+1)
		if m := heading.FindStringSubmatch(code); m != nil {
			switch {
			case m[2] == "class" && m[1] == "":
				class, method = m[3], ""
			case m[1] == "":
				class, method = "", ""
			case m[2] == "def" && class != "" && len(m[1]) <= 4:
				method = ""
				if strings.HasPrefix(m[3], "test") {
					method = m[3]
				}
			}
			if decorator != "" {
				found[pythonName(module, class, method)] = decorator
			}
			decorator = ""
			continue
		}
		if trimmed := strings.TrimSpace(code); !skip.MatchString(code) || strings.HasPrefix(trimmed, "import ") ||
			strings.HasPrefix(trimmed, "from ") {
			continue
		}
		if strings.HasPrefix(strings.TrimSpace(code), "@") {
			decorator = at
			continue
		}
		if code[0] != ' ' && code[0] != '\t' {
			class, method = "", ""
		}
		if name := pythonName(module, class, method); found[name] == "" {
			found[name] = at
		}
	}
	return nil
}

func pythonName(module, class, method string) string {
	name := module
	if class != "" {
		name += "." + class
	}
	if method != "" {
		name += "." + method
	}
	return name
}
