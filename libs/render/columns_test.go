package render_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/render"
)

func TestColumnsAreAlignedAsATerminalShowsThem(t *testing.T) {
	var b strings.Builder
	c := render.Columns{To: &b}
	fmt.Fprint(&c, "NAME\tUSER\n訓練ジョブ\tann\n🚀 run\tbob\ncafe\u0301\tcarl\nתדריב\tdora\n")
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	const want = "NAME        USER\n訓練ジョブ  ann\n🚀 run      bob\ncafe\u0301        carl\nתדריב       dora\n"
	if b.String() != want {
		t.Errorf("the table is\n%swant\n%s", b.String(), want)
	}
}

// Of text whose letters take one column each, a table is that of the standard library.
func TestColumnsAreThoseOfTabwriter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab é\t\n")), 0, 60, -1).Draw(t, "text") + "\n"
		var got, want bytes.Buffer
		ours, theirs := render.Columns{To: &got}, tabwriter.NewWriter(&want, 0, 8, 2, ' ', 0)
		fmt.Fprint(&ours, text)
		fmt.Fprint(theirs, text)
		if ours.Flush() != nil || theirs.Flush() != nil || !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Fatalf("%q becomes\n%q, want\n%q", text, got.String(), want.String())
		}
	})
}

func TestATextIsCutToTheColumnsOfATerminal(t *testing.T) {
	for text, want := range map[string]string{"訓練ジョブ": "訓練..", "訓練ジ": "訓練ジ", "abcdefgh": "abcd..", "abcdef": "abcdef", "a訓練ジョブ": "a訓.."} {
		if got := render.ClipText(text, 6); got != want {
			t.Errorf("%q is cut to %q, want %q", text, got, want)
		}
	}
}
