package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/switchyard-dl/switchyard/tools/walk"
)

// group is a group of pages in the navigation: named ones, or all of a folder.
type group struct {
	Title string
	Pages []struct{ File, Title string }
	// Folder is the folder whose pages are in this group, in the order of their names.
	Folder string
}

// navigation returns one line for each Markdown file that is not in the navigation exactly once, and for each entry
// without a file.
func navigation(root string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "tools/site/hugo/data/navigation.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read the navigation: %w", err)
	}
	var groups []group
	if err := yaml.Unmarshal(text, &groups); err != nil {
		return nil, fmt.Errorf("read the navigation: %w", err)
	}
	entries, folders := map[string]int{}, map[string]int{}
	for _, g := range groups {
		for _, page := range g.Pages {
			entries[page.File]++
		}
		if g.Folder != "" {
			folders[g.Folder]++
		}
	}
	var findings []string
	err = walk.Files(root, func(_, file string) error {
		if !strings.HasSuffix(file, ".md") {
			return nil
		}
		if times := entries[file] + folders[path.Dir(file)]; times != 1 {
			findings = append(findings, fmt.Sprintf("%s is in the navigation %d times: tools/site/hugo/data/navigation.yaml", file, times))
		}
		delete(entries, file)
		return nil
	})
	for file := range entries {
		findings = append(findings, fmt.Sprintf("the navigation names %s, which does not exist", file))
	}
	slices.Sort(findings)
	return findings, err
}
