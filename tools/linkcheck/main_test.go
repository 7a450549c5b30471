package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheck(t *testing.T) {
	files := map[string]string{
		"README.md":             "# The house: rooms & `keys`\n\n```\n# no heading\n```\n\n## A second_part\n",
		"docs/a.md":             "",
		"docs/b.svg":            "",
		"services/x_test.go":    "package services\n\nfunc TestX(t *testing.T) {}\n",
		"services/x.go":         "package services\n\n// See docs/a.md and docs/b.svg, and github.com/docs/z.\n",
		"examples/j.yml":        "",
		"docs/configuration.md": "## planner\n\n| key |\n|---|\n| `policy` |\n",
	}
	for name, tc := range map[string]struct {
		file, text string
		want       []string
	}{
		"links that lead somewhere": {
			file: "docs/a.md",
			text: "[a](../README.md) [b](../README.md#the-house-rooms--keys) [c](b.svg) [d](https://x.org/docs/z) ![e](../docs/b.svg) [f](../services)\n\n" +
				"# Here\n[g](#here) [h](../README.md#a-second_part)",
		},
		"links that lead nowhere": {
			file: "docs/a.md",
			text: "[a](README.md)\n[b](../README.md#no-heading)\n[c](#there)",
			want: []string{
				"docs/a.md:1: link to README.md: no such file",
				"docs/a.md:2: link to ../README.md#no-heading: no such heading",
				"docs/a.md:3: link to #there: no such heading",
			},
		},
		"tests that show a feature": {
			file: "docs/a.md",
			text: "[TestX](../services/x_test.go), [the tests](../services/x_test.go)\n| feature | shown by |\n|---|---|\n| a | [TestX, TestY](../services/x_test.go) |\n| b |  |\n\n| x |  |",
			want: []string{"docs/a.md:4: no test TestY in x_test.go", "docs/a.md:5: nothing shows it"},
		},
		"paths in text, code and commands": {
			file: "README.md",
			text: "Read `services/x.go` or docs/b.svg.\n\n    go test ./services/... && switchyard submit examples/j.yml --file=docs/*.md\n",
		},
		"paths to nothing": {
			file: "README.md",
			text: "Read `services/y.go`.\n\n    go test ./services/y/... && switchyard submit examples/j.yaml\n",
			want: []string{"README.md:1: services/y.go does not exist", "README.md:3: examples/j.yaml does not exist", "README.md:3: services/y does not exist"},
		},
		"keys of the configuration": {
			file: "README.md",
			text: "Set `planner.policy: fifo`, `planner.polcy` or `planner.Input`.\n",
			want: []string{"README.md:1: no setting is called planner.polcy"},
		},
		"a page that a comment in Go names": {
			file: "libs/a.go",
			text: "package a\n\n// The rules are in docs/rules.md, see docs/a.md.\n",
			want: []string{"libs/a.go:3: docs/rules.md does not exist"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			write := func(name, text string) {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for name, text := range files {
				write(name, text)
			}
			write(tc.file, tc.text)
			got, err := check(root)
			if err != nil {
				t.Fatal(err)
			}
			for i := range got {
				got[i] = strings.TrimPrefix(got[i], root+"/")
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}
