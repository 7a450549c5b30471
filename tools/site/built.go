package main

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// reference is an address that a page names: a link to follow, or something that a browser loads with the page.
type reference struct {
	address string
	loaded  bool
}

// document is what a page of the site offers to links, and what it refers to.
type document struct {
	anchors    map[string]bool
	references []reference
}

// built returns one line for each reference of the site in dir that leads nowhere, and for each one by which a browser
// would load something from elsewhere.
func built(dir string) ([]string, error) {
	site, files := os.DirFS(dir), map[string]*document{}
	err := fs.WalkDir(site, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if files[file] = (*document)(nil); path.Ext(file) != ".html" {
			return nil
		}
		files[file], err = read(site, file)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the site: %w", err)
	}
	if files["index.html"] == nil {
		return nil, fmt.Errorf("read the site: %s has no index.html", dir)
	}
	var findings []string
	for file, doc := range files {
		if doc == nil {
			continue
		}
		for _, r := range doc.references {
			if fault := judge(files, file, r); fault != "" {
				findings = append(findings, fmt.Sprintf("%s: %s: %s", file, r.address, fault))
			}
		}
	}
	slices.Sort(findings)
	return slices.Compact(findings), nil
}

// judge returns what is wrong with a reference of a page, or "".
func judge(files map[string]*document, page string, r reference) string {
	to, err := url.Parse(r.address)
	switch {
	case err != nil:
		return "no address"
	case to.Scheme == "data":
		return ""
	case to.IsAbs() || to.Host != "":
		if r.loaded {
			return "is loaded from elsewhere"
		}
		return ""
	}
	target := page
	if to.Path != "" {
		target = path.Join(path.Dir(page), to.Path)
	}
	doc, exists := files[target]
	switch {
	case !exists:
		return "no such file"
	case to.Fragment != "" && doc != nil && !doc.anchors[to.Fragment]:
		return "no such heading"
	}
	return ""
}

// read parses a page.
func read(site fs.FS, file string) (*document, error) {
	in, err := site.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	root, err := html.Parse(in)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", file, err)
	}
	doc := &document{anchors: map[string]bool{}}
	for node := range root.Descendants() {
		for _, a := range node.Attr {
			switch {
			case a.Key == "id" || a.Key == "name" && node.Data == "a":
				doc.anchors[a.Val] = true
			case a.Key == "src" || a.Key == "href" && !strings.EqualFold(node.Data, "a"):
				doc.references = append(doc.references, reference{a.Val, true})
			case a.Key == "href":
				doc.references = append(doc.references, reference{a.Val, false})
			}
		}
	}
	return doc, nil
}
