// Command skipcheck keeps docs/skips.md true: every Go or Python test that may skip itself has a row there with its
// reason, and every row names a test that still may. It reads source text alone; it runs no test, so a skip that only
// some machine takes is found on every machine.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/tools/walk"
)

func main() {
	root := flag.String("root", ".", "the repository")
	list := flag.String("list", "docs/skips.md", "the table of tests that may skip, under the repository")
	flag.Parse()
	complaints, err := check(*root, filepath.Join(*root, *list))
	walk.Exit("skipcheck", complaints, err)
}

// check compares the tests that may skip under root with the table in listPath, and returns one line for each
// difference.
func check(root, listPath string) ([]string, error) {
	listed, complaints, err := readTable(listPath)
	if err != nil {
		return nil, err
	}
	found, err := findSkips(root)
	if err != nil {
		return nil, err
	}
	for name, at := range found {
		if _, ok := listed[name]; !ok {
			complaints = append(complaints, fmt.Sprintf("%s: %s may skip: list it with its reason in %s", at, name, listPath))
		}
	}
	for name, at := range listed {
		if _, ok := found[name]; !ok {
			complaints = append(complaints, fmt.Sprintf("%s: no test named %s may skip: remove the row", at, name))
		}
	}
	slices.Sort(complaints)
	return complaints, nil
}

// readTable returns the tests in the first column of the table in a Markdown file with the place of each row, and a
// complaint for each row without a reason. Commas separate the tests of a row; a test without a folder is in the folder
// of the test before it.
func readTable(path string) (map[string]string, []string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read table of skips: %w", err)
	}
	rows := map[string]string{}
	var complaints []string
	for i, line := range strings.Split(string(text), "\n") {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		name := strings.Trim(strings.TrimSpace(cells[0]), "`")
		if !strings.HasPrefix(line, "|") || name == "tests" || strings.Trim(name, "-: ") == "" {
			continue
		}
		at := fmt.Sprintf("%s:%d", path, i+1)
		folder := ""
		for test := range strings.SplitSeq(name, ", ") {
			if before, _, ok := strings.Cut(test, "."); ok {
				folder = before
			} else {
				test = folder + "." + test
			}
			rows[test] = at
		}
		if len(cells) < 2 || strings.TrimSpace(cells[1]) == "" {
			complaints = append(complaints, fmt.Sprintf("%s: %s has no reason", at, name))
		}
	}
	return rows, complaints, nil
}

// findSkips returns the tests under root that may skip, by name, with the place of the first skip in each.
func findSkips(root string) (map[string]string, error) {
	found := map[string]string{}
	code := newGoCode()
	err := walk.Files(root, func(path, rel string) error {
		name := filepath.Base(path)
		switch {
		case strings.HasSuffix(name, ".go"):
			return code.add(path, rel)
		case strings.HasPrefix(name, "test") && strings.HasSuffix(name, ".py"):
			return addPython(found, path, rel)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	code.tests(found)
	return found, nil
}
