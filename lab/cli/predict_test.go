package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestInsertReplacesTheMarkedPartAlone(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("before\n"+opening+"old\n"+closing+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := insert(page, "new\n"); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := os.ReadFile(page); string(got) != "before\n"+opening+"\nnew\n"+closing+"after\n" {
		t.Errorf("the page is %q", got)
	}
	if err := os.WriteFile(page, []byte("no marks"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := insert(page, "new"); err == nil || !strings.Contains(err.Error(), "the lines") {
		t.Errorf("a page without marks: %v", err)
	}
}
