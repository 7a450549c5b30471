package render

import (
	"os/exec"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestEscapeText(t *testing.T) {
	for in, want := range map[string]string{
		"plain, Grüße, 日本": "plain, Grüße, 日本",
		"\x1b[31mred":      `\x1b[31mred`,
		"a\nb\tc\rd":       `a\nb\tc\rd`,
		"\u009b2J":         `\u009b2J`,
		"\x9b2J":           `\x9b2J`,
		"\u202egnp.exe":    `\u202egnp.exe`,
		"a\u2028b\x7f\x00": `a\u2028b\x7f\x00`,
		"\ufffd":           "\ufffd",
	} {
		if got := EscapeText(in); got != want {
			t.Errorf("escapeText(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestEscapeLines(t *testing.T) {
	for in, want := range map[string]string{
		"a\n\tb\n":       "a\n\tb\n",
		"dos\r\n\r\nend": "dos\n\nend",
		// A progress bar is the line that it last was, as on a terminal.
		" 10%|#\r 20%|##\r\n":            " 20%|##\n",
		"\r 10%|#\r 20%|##":              " 20%|##",
		"\x1b[1;32mok\x1b[0m \x1b[2mx":   "ok x",
		"\x1b[31":                        `\x1b[31`,
		"\x1b[\x1b[mm":                   `\x1b[m`,
		"last\r":                         "last",
		"\x1b]0;title\x07x\x1b[2J":       `\x1b]0;title\x07x\x1b[2J`,
		"cut \xe6\x97":                   `cut \xe6\x97`,
		"a\r\r\nb":                       "a\nb",
		"\x1bPq\u009c" + "\u2067" + "ok": `\x1bPq\u009c\u2067ok`,
	} {
		if got := EscapeLines(in); got != want {
			t.Errorf("escapeLines(%q) = %q, want %q", in, got, want)
		}
	}
}

// Whatever a job writes and however it is cut, nothing reaches the terminal that it would obey, and the cuts leave no
// trace.
func TestOutputIsHarmlessHoweverItIsCut(t *testing.T) {
	pieces := rapid.SampledFrom([]string{"a", "ü", "日", "\r", "\n", "\r\n", "\t", "\x1b[2J", "\x9b", "\u009b", "\u202e", "\xe6\x97", "\xff", "\x00"})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(pieces).Draw(t, "text"), "")
		var b strings.Builder
		e := OutputEscaper{To: &b}
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			if written, err := e.Write([]byte(rest[:n])); err != nil || written != n {
				t.Fatal(written, err)
			}
			rest = rest[n:]
		}
		if err := e.Flush(); err != nil {
			t.Fatal(err)
		}
		got := b.String()
		if want := EscapeLines(text); got != want {
			t.Fatalf("cut: %q, whole: %q", got, want)
		}
		for _, r := range got {
			if r != '\n' && r != '\t' && Obeyed(r) {
				t.Fatalf("%q lets %q through", text, r)
			}
		}
		if strings.Count(got, "\n") < strings.Count(text, "\n") {
			t.Fatalf("%q lost a line: %q", text, got)
		}
	})
}

func TestDuration(t *testing.T) {
	for seconds, want := range map[float64]string{
		-3: "0s", 0: "0s", 0.04: "0.0s", 3.21: "3.2s", 9.94: "9.9s", 9.96: "10s", 59.4: "59s", 59.6: "1m00s", 723: "12m03s", 3599.7: "1h00m", 9060: "2h31m",
		86399: "1d00h", 273600: "3d04h", 1e300: "36500d00h",
	} {
		if got := Duration(seconds); got != want {
			t.Errorf("duration(%g) = %q, want %q", seconds, got, want)
		}
	}
}

func TestProgressBar(t *testing.T) {
	for _, tc := range []struct {
		done float64
		want string
	}{{0, "....."}, {0.3, "#...."}, {0.6, "###.."}, {0.9, "####."}, {1, "#####"}, {1.2, "#####"}, {-0.1, "....."}} {
		if got := ProgressBar(tc.done, 5); got != tc.want {
			t.Errorf("%g: %q, want %q", tc.done, got, tc.want)
		}
	}
}

func TestShellWordsComeBackFromAShell(t *testing.T) {
	words := []string{"python3", "it's", "", "a b", "$HOME", "--x=1", "`id`", "a\\b"}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s|' `+ShellWords(words)).Output()
	if err != nil || string(out) != strings.Join(words, "|")+"|" {
		t.Fatalf("%q, %v", out, err)
	}
}
