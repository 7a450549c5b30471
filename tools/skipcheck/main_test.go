package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// write lays out files, by path, in a new folder.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestFindSkips(t *testing.T) {
	const header = "package a\n\nimport \"testing\"\n\n"
	for name, tc := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"a test that skips": {
			files: map[string]string{"libs/a/a_test.go": header + "func TestA(t *testing.T) { t.Skip(\"no\") }\nfunc TestB(t *testing.T) { t.Log() }"},
			want:  []string{"libs/a.TestA"},
		},
		"benchmarks, fuzz targets and every way to say it": {
			files: map[string]string{"a/a_test.go": header + `
func BenchmarkA(b *testing.B) { b.Skipf("%d", 1) }
func FuzzA(f *testing.F) { f.Fuzz(func(t *testing.T, in []byte) { t.SkipNow() }) }
func TestShort(t *testing.T) { if testing.Short() { return } }`},
			want: []string{"a.BenchmarkA", "a.FuzzA", "a.TestShort"},
		},
		"a subtest counts for its test": {
			files: map[string]string{"a/a_test.go": header + "func TestA(t *testing.T) { t.Run(\"x\", func(s *testing.T) { s.Skip() }) }"},
			want:  []string{"a.TestA"},
		},
		"a helper that skips counts for each caller": {
			files: map[string]string{"a/a_test.go": header + `
func need(tb testing.TB) { deeper(tb) }
func deeper(tb testing.TB) { tb.Skip() }
func TestA(t *testing.T) { need(t) }
func TestB(t *testing.T) {}`},
			want: []string{"a.TestA"},
		},
		"a helper in another folder": {
			files: map[string]string{
				"libs/b/b.go":   "package b\n\nimport \"testing\"\n\nfunc Need(tb testing.TB) { tb.Skip() }",
				"a/a_test.go":   "package a\n\nimport (\n\"testing\"\n\n\"example.com/m/libs/b\"\n)\n\nfunc TestA(t *testing.T) { b.Need(t) }",
				"a/c/c_test.go": "package c\n\nimport \"testing\"\n\ntype b struct{}\n\nfunc (b) Need(*testing.T) {}\n\nfunc TestC(t *testing.T) { b{}.Need(t) }",
			},
			want: []string{"a.TestA"},
		},
		"a harness with a testing.TB in a field": {
			files: map[string]string{"a/a_test.go": header + "type rig struct{ tb testing.TB }\n\nfunc (r rig) start() { r.tb.Skip() }\n\nfunc TestA(t *testing.T) { rig{t}.start() }"},
			want:  []string{"a.TestA"},
		},
		"a rapid.T discards a draw, a decoder passes over a value": {
			files: map[string]string{"a/a_test.go": "package a\n\nimport (\n\"testing\"\n\n\"pgregory.net/rapid\"\n)\n\n" +
				"func TestA(t *testing.T) { rapid.Check(t, func(t *rapid.T) { t.Skip() }); d := newDecoder(); d.Skip() }"},
		},
		"test data is no test": {
			files: map[string]string{"a/testdata/a_test.go": header + "func TestA(t *testing.T) { t.Skip() }"},
		},
		"Python": {
			files: map[string]string{"py/tests/test_a.py": `
import unittest
from unittest import skipIf


class Plain(unittest.TestCase):
    def test_runs(self):
        self.assertTrue(True)  # never skip()

    @unittest.skipUnless(False, "no")
    def test_decorated(self):
        pass

    def test_inside(self):
        if True:
            self.skipTest("no")

    def test_raises(self):
        raise unittest.SkipTest("no")


@skipIf(True, "no")
class Whole(unittest.TestCase):
    def test_x(self):
        pass


class Prepared(unittest.TestCase):
    def setUp(self):
        self.skipTest("no")
`, "py/tests/test_b.py": "import unittest\nraise unittest.SkipTest('no')\n"},
			want: []string{
				"py/tests/test_a.Plain.test_decorated", "py/tests/test_a.Plain.test_inside", "py/tests/test_a.Plain.test_raises",
				"py/tests/test_a.Prepared", "py/tests/test_a.Whole", "py/tests/test_b",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := findSkips(write(t, tc.files))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, slices.Sorted(maps.Keys(found))); diff != "" {
				t.Errorf("tests that may skip (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	root := write(t, map[string]string{
		"a/a_test.go": "package a\n\nimport \"testing\"\n\n" +
			"func TestListed(t *testing.T) { t.Skip() }; func TestOther(t *testing.T) { t.Skip() }\nfunc TestMute(t *testing.T) { t.Skip() }\nfunc TestForgotten(t *testing.T) { t.Skip() }\n",
		"b/b_test.go":   "package b\n\nimport \"testing\"\n\nfunc TestThird(t *testing.T) { t.Skip() }\n",
		"docs/skips.md": "# Skips\n\n| tests | skip if |\n| --- | --- |\n| `a.TestListed, TestOther, b.TestThird` | needs a GPU |\n| a.TestMute | |\n| a.TestGone | was slow |\n",
	})
	t.Chdir(root)
	complaints, err := check(".", "docs/skips.md")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"a/a_test.go:7: a.TestForgotten may skip: list it with its reason in docs/skips.md",
		"docs/skips.md:6: a.TestMute has no reason",
		"docs/skips.md:7: no test named a.TestGone may skip: remove the row",
	}
	if diff := cmp.Diff(want, complaints); diff != "" {
		t.Errorf("complaints (-want +got):\n%s", diff)
	}
	if _, err := check(".", "docs/none.md"); err == nil || !strings.Contains(err.Error(), "read table") {
		t.Errorf("check without a table: %v", err)
	}
}
