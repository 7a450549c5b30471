package cli

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// obeyed says whether a terminal would do something on a rune instead of showing it: control characters, line breaks beyond ASCII, and what turns the
// direction of the text around it.
func obeyed(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// escaped shows a rune that is not obeyed; size 1 with RuneError is a byte that is no UTF-8.
func escaped(r rune, size int, raw byte) string {
	switch {
	case r == utf8.RuneError && size == 1:
		return fmt.Sprintf(`\x%02x`, raw)
	case r == '\n':
		return `\n`
	case r == '\t':
		return `\t`
	case r == '\r':
		return `\r`
	case r < 0x80:
		return fmt.Sprintf(`\x%02x`, r)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// escapeText makes text of others fit for one line of a terminal: control characters, newline and tab among them, are shown and not obeyed.
func escapeText(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 || obeyed(r) {
			b.WriteString(escaped(r, size, s[i]))
		} else {
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}

// escapeLines is escapeText for text of several lines: newline and tab stay.
func escapeLines(s string) string {
	var b strings.Builder
	e := outputEscaper{to: &b}
	_, _ = e.Write([]byte(s)) // a Builder takes everything
	_ = e.Flush()
	return b.String()
}

// outputEscaper passes the output of a job on to a terminal, with control characters shown and not obeyed. Newline and tab stay, and what a job draws over
// itself with carriage returns, such as a progress bar, becomes lines. Pieces may be cut anywhere.
type outputEscaper struct {
	to io.Writer
	// rest is a rune that is not complete yet.
	rest []byte
	// returned: a carriage return came last. begun: the line is not empty.
	returned, begun bool
}

// Write escapes a piece.
func (e *outputEscaper) Write(p []byte) (int, error) {
	data := append(e.rest, p...)
	var b strings.Builder
	for len(data) > 0 && utf8.FullRune(data) {
		r, size := utf8.DecodeRune(data)
		e.put(&b, r, size, data)
		data = data[size:]
	}
	e.rest = slices.Clone(data)
	_, err := io.WriteString(e.to, b.String())
	return len(p), err
}

func (e *outputEscaper) put(b *strings.Builder, r rune, size int, data []byte) {
	if r == '\r' {
		e.returned = true
		return
	}
	if e.returned && r != '\n' && e.begun {
		b.WriteByte('\n')
		e.begun = false
	}
	e.returned = false
	switch {
	case r == '\n':
		b.WriteByte('\n')
		e.begun = false
		return
	case r == '\t':
		b.WriteByte('\t')
	case r == utf8.RuneError && size == 1, obeyed(r):
		b.WriteString(escaped(r, size, data[0]))
	default:
		b.Write(data[:size])
	}
	e.begun = true
}

// Flush passes on what was kept back.
func (e *outputEscaper) Flush() error {
	var b strings.Builder
	for _, raw := range e.rest {
		b.WriteString(escaped(utf8.RuneError, 1, raw))
	}
	e.rest = nil
	_, err := io.WriteString(e.to, b.String())
	return err
}

// duration prints seconds as people say them: 3.2s, 45s, 12m03s, 2h31m, 3d04h.
func duration(seconds float64) string {
	if !(seconds > 0) {
		return "0s"
	}
	const century = 100 * 365 * 24 * 3600.0
	seconds = math.Min(seconds, century)
	if seconds < 9.95 {
		return fmt.Sprintf("%.1fs", seconds)
	}
	s := int(math.Round(seconds))
	if s < 60 {
		return fmt.Sprintf("%ds", s)
	}
	if s < 3600 {
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	}
	m := int(math.Round(seconds / 60))
	if m < 24*60 {
		return fmt.Sprintf("%dh%02dm", m/60, m%60)
	}
	h := int(math.Round(seconds / 3600))
	return fmt.Sprintf("%dd%02dh", h/24, h%24)
}

// stepTime prints the duration of a training step, which may be far below a second.
func stepTime(seconds float64) string {
	switch {
	case seconds < 1e-3:
		return fmt.Sprintf("%.3g us", seconds*1e6)
	case seconds < 1:
		return fmt.Sprintf("%.3g ms", seconds*1e3)
	}
	return fmt.Sprintf("%.3g s", seconds)
}

// clock prints a time of day, with the date where it is not today's. The zone is now's.
func clock(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	t = t.In(now.Location())
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// progressBar draws done of total, as `###..`.
func progressBar(done, total, width int) string {
	full := 0
	if total > 0 {
		full = min(max(done*width/total, 0), width)
	}
	return strings.Repeat("#", full) + strings.Repeat(".", width-full)
}

// clipText cuts text to so many runes, for a column of a table.
func clipText(s string, runes int) string {
	r := []rune(s)
	if len(r) <= runes {
		return s
	}
	return string(r[:runes-2]) + ".."
}

// dash stands for nothing in a table.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// cell is text of others in a table.
func cell(s string, runes int) string { return dash(clipText(escapeText(s), runes)) }

// plural counts things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// energyOf prints an account; "~" marks what is modelled throughout and measured nowhere.
func energyOf(account train.Account) string {
	if len(account.Methods) == 0 {
		return "-"
	}
	return modelledMark(account.Methods) + account.Energy.String()
}

const methodModelled = "modelled"

func modelledMark(methods []string) string {
	if slices.ContainsFunc(methods, func(m string) bool { return m != methodModelled }) {
		return ""
	}
	return "~"
}

// isTerminal says whether a person looks at w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
