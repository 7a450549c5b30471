// Package walk is what the checks of this repository have in common: which files they read, and how they report.
package walk

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Files calls visit with the path of each file under root, and with its slash-separated path below root. It leaves out
// hidden folders, programs, test data and other people's code.
func Files(root string, visit func(path, rel string) error) error {
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || slices.Contains([]string{"bin", "node_modules", "testdata", "vendor"}, name)) {
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return visit(path, filepath.ToSlash(rel))
	})
	if err != nil {
		return fmt.Errorf("read the files under %s: %w", root, err)
	}
	return nil
}

// Exit prints the findings of a check and ends the program: with 1 if there are any, with 2 if the check failed.
func Exit(check string, findings []string, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, check+":", err)
		os.Exit(2)
	}
	for _, finding := range findings {
		fmt.Println(finding)
	}
	if len(findings) > 0 {
		os.Exit(1)
	}
}
