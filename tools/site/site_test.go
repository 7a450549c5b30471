package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// write makes files in a folder of the test.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestEachPageIsInTheNavigationOnce(t *testing.T) {
	root := write(t, map[string]string{
		"README.md": "", "docs/once.md": "", "docs/twice.md": "", "docs/never.md": "", "docs/adr/0001.md": "", "docs/adr/0002.md": "",
		"node_modules/other/README.md": "",
		"tools/site/hugo/data/navigation.yaml": `
- title: Start
  pages: [{file: README.md, title: A}, {file: docs/once.md, title: B}, {file: docs/twice.md, title: C}]
- title: Others
  pages: [{file: docs/twice.md, title: C}, {file: docs/gone.md, title: D}, {file: docs/adr/0002.md, title: E}]
- title: Decisions
  folder: docs/adr
`,
	})
	const in = " times: tools/site/hugo/data/navigation.yaml"
	want := []string{
		"docs/adr/0002.md is in the navigation 2" + in, "docs/never.md is in the navigation 0" + in, "docs/twice.md is in the navigation 2" + in,
		"the navigation names docs/gone.md, which does not exist",
	}
	got, err := navigation(root)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestDeadLinksAndOutsideAddressesAreFound(t *testing.T) {
	dir := write(t, map[string]string{
		"index.html": `<h1 id="top">A</h1><a href="docs/b.html#there">good</a><a href="docs/b.html#gone">bad</a><a href="#top">good</a>
<a href="docs/gone.html">bad</a><a href="https://example.org/x">good</a><script src="https://example.org/x.js"></script><link rel="icon" href="data:,">`,
		"docs/b.html": `<h2 id=there>B</h2><a href="../index.html">good</a><img src="c.svg"><img src="gone.svg">`,
		"docs/c.svg":  "<svg/>",
	})
	want := []string{
		"docs/b.html: gone.svg: no such file", "index.html: docs/b.html#gone: no such heading", "index.html: docs/gone.html: no such file",
		"index.html: https://example.org/x.js: is loaded from elsewhere",
	}
	got, err := built(dir)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := built(t.TempDir()); err == nil {
		t.Error("an empty site is good")
	}
}
