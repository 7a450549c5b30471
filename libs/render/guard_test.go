package render_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/switchyard-dl/switchyard/libs/render"
)

func TestAGuardMakesEscapesVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain ünïcode\tx\n":          "plain ünïcode\tx\n",
		"\x1b]0;pwned\a\x1b[2J":       `\u001b]0;pwned\u0007\u001b[2J`,
		"over\rwritten\r\n":           `over\u000dwritten` + "\r\n",
		"\u009b31m\u202eevil\x7f\x9b": `\u009b31m\u202eevil\u007f` + "\ufffd",
	} {
		for cut := range len(in) + 1 {
			var b strings.Builder
			g := render.NewGuard(&b)
			for _, part := range []string{in[:cut], in[cut:]} {
				if n, err := g.Write([]byte(part)); err != nil || n != len(part) {
					t.Fatal(n, err)
				}
			}
			if got := b.String(); got != want && !(strings.Contains(in, "\r\n") && strings.HasPrefix(in[cut:], "\n")) {
				t.Errorf("%q cut at %d: %q, want %q", in, cut, got, want)
			}
		}
	}
}

// Nothing that a terminal obeys gets through, in any pieces, and JSON stays the same value.
func FuzzGuard(f *testing.F) {
	f.Add("\x1b[31mx", 2)
	f.Add("\xc2\x9b2J\u202e", 1)
	f.Fuzz(func(t *testing.T, in string, cut int) {
		cut = min(max(cut, 0), len(in))
		var b strings.Builder
		g := render.NewGuard(&b)
		_, _ = g.Write([]byte(in[:cut]))
		_, _ = g.Write([]byte(in[cut:]))
		for _, r := range strings.ReplaceAll(b.String(), "\r\n", "") {
			if render.Obeyed(r) && r != '\n' && r != '\t' || !utf8.ValidRune(r) {
				t.Fatalf("%q lets %q through", in, r)
			}
		}
		if !utf8.ValidString(in) {
			return
		}
		line, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		b.Reset()
		_, _ = render.NewGuard(&b).Write(line)
		var back string
		if err := json.Unmarshal([]byte(b.String()), &back); err != nil || back != in {
			t.Fatalf("%q becomes %q, %v", in, back, err)
		}
	})
}
