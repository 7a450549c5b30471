// Package render prints tables, times and pages for people.
package render

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Obeyed reports whether a terminal acts on a rune instead of showing it: control characters, line breaks beyond
// ASCII, and characters that change the direction of text.
func Obeyed(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// escaped returns the visible form of a rune. Size 1 with RuneError is a byte that is not UTF-8.
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

// EscapeText makes text from users safe for one line of a terminal: it replaces control characters, newline and tab
// included, by a visible form.
func EscapeText(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 || Obeyed(r) {
			b.WriteString(escaped(r, size, s[i]))
		} else {
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}

// EscapeLines is EscapeText for text of several lines: newline and tab stay.
func EscapeLines(s string) string {
	var b strings.Builder
	e := OutputEscaper{To: &b}
	_, _ = e.Write([]byte(s)) // a Builder takes everything
	_ = e.Flush()
	return b.String()
}

// longestLine bounds what is held back of a line whose end has not come.
const longestLine = 64 << 10

// OutputEscaper passes the output of a job on to a terminal, line by line, and makes control characters visible.
// Newline and tab stay, colours are left out. Of text that a job overwrites with carriage returns, such as a progress
// bar, the last state becomes the line. The output may be written in any pieces.
type OutputEscaper struct {
	To io.Writer
	// Live shows a line whose end has not come, and writes over it later: To is a terminal with this many columns.
	Live int
	// line is the line so far, open whether a part of it is shown.
	line []byte
	open bool
}

// Write passes the lines on that are complete.
func (e *OutputEscaper) Write(p []byte) (int, error) {
	var b strings.Builder
	for rest := p; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			e.line = append(e.line, rest...)
			break
		}
		e.line = append(e.line, rest[:end]...)
		e.put(&b, shown(e.line), "\n")
		e.line, rest = e.line[:0], rest[end+1:]
	}
	if len(e.line) > longestLine {
		whole := lastRune(e.line)
		e.put(&b, shown(e.line[:whole]), "")
		e.line, e.open = slices.Clone(e.line[whole:]), false
	}
	if text := shown(e.line); e.Live > 0 && text != "" {
		e.put(&b, ClipText(text, e.Live-1), "")
		e.open = true
	}
	_, err := io.WriteString(e.To, b.String())
	return len(p), err
}

// put writes a line over the part of it that is shown.
func (e *OutputEscaper) put(b *strings.Builder, text, end string) {
	if e.open {
		b.WriteString("\r\x1b[K")
		e.open = false
	}
	b.WriteString(text + end)
}

// Flush writes a line that has no end.
func (e *OutputEscaper) Flush() error {
	var b strings.Builder
	if len(e.line) > 0 {
		e.put(&b, shown(e.line), "")
	}
	e.line = nil
	_, err := io.WriteString(e.To, b.String())
	return err
}

// lastRune returns where the last rune begins if it is not complete, else the length.
func lastRune(line []byte) int {
	for back := 1; back <= min(utf8.UTFMax, len(line)); back++ {
		if at := len(line) - back; utf8.RuneStart(line[at]) {
			if utf8.FullRune(line[at:]) {
				return len(line)
			}
			return at
		}
	}
	return len(line)
}

// shown returns what a terminal would show of a line in the end, with control characters made visible.
func shown(line []byte) string {
	text := strings.TrimRight(string(line), "\r")
	text = text[strings.LastIndexByte(text, '\r')+1:]
	parts := strings.Split(withoutColours(text), "\t")
	for i, part := range parts {
		parts[i] = EscapeText(part)
	}
	return strings.Join(parts, "\t")
}

// withoutColours removes the sequences that set colours and weights: ESC [ numbers m.
func withoutColours(s string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "\x1b[")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		rest := strings.TrimLeft(after, "0123456789;:")
		if !strings.HasPrefix(rest, "m") {
			b.WriteString("\x1b[")
			rest = "m" + after
		}
		s = rest[1:]
	}
}

// Duration prints seconds as people say them: 3.2s, 45s, 12m03s, 2h31m, 3d04h.
func Duration(seconds float64) string {
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

// Exactly prints a number such that it reads back as the same.
func Exactly(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// StepTime prints the duration of a training step, which may be far below a second.
func StepTime(seconds float64) string {
	switch {
	case seconds < 1e-3:
		return fmt.Sprintf("%.3g us", seconds*1e6)
	case seconds < 1:
		return fmt.Sprintf("%.3g ms", seconds*1e3)
	}
	return fmt.Sprintf("%.3g s", seconds)
}

// Clock prints a time of day, with the date unless it is today. The zone is now's.
func Clock(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	t = t.In(now.Location())
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// rounding keeps 3 of 5 from being drawn as 2.
const rounding = 1e-9

// Percent is a part in whole per cent, rounded down.
func Percent(done float64) int { return int(100*done + rounding) }

// ProgressBar draws the part that is done, as `###..`.
func ProgressBar(done float64, width int) string {
	full := min(max(int(done*float64(width)+rounding), 0), width)
	return strings.Repeat("#", full) + strings.Repeat(".", width-full)
}

// ClipText cuts text to a number of columns of a terminal.
func ClipText(s string, columns int) string {
	if Width(s) <= columns {
		return s
	}
	const end = ".."
	room := columns - len(end)
	for i, r := range s {
		if room -= Width(string(r)); room < 0 {
			return s[:i] + end
		}
	}
	return s
}

// Dash returns s, or a dash if s is empty.
func Dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Cell escapes and cuts text from users for a table.
func Cell(s string, runes int) string { return Dash(ClipText(EscapeText(s), runes)) }

// Epochs returns how many epochs of a job are done, of as many as it declares.
func Epochs(done, all int) string {
	switch {
	case all > 0:
		return fmt.Sprintf("%d/%d", done, all)
	case done > 0:
		return strconv.Itoa(done)
	}
	return "-"
}

// Plural returns a count with its noun.
func Plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// EnergyOf prints an account. "~" marks energy that is only modelled.
func EnergyOf(account train.Account) string {
	if len(account.Methods) == 0 {
		return "-"
	}
	return ModelledMark(account.Methods) + account.Energy.String()
}

// ModelledMark is put before a figure that no meter has shown.
func ModelledMark(methods []string) string {
	if train.Modelled(methods) {
		return "~"
	}
	return ""
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	_, terminal := TerminalWidth(w)
	return terminal
}

// TerminalWidth returns the number of columns of a terminal, or 80 if the terminal does not know it.
func TerminalWidth(w io.Writer) (columns int, terminal bool) {
	const usual = 80
	f, ok := Raw(w).(*os.File)
	if !ok {
		return 0, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	switch {
	case err != nil:
		return 0, false // only terminals have a size
	case size.Col <= 1:
		return usual, true
	}
	return int(size.Col), true
}

// ShellWords joins words so that a person can paste them into a shell.
func ShellWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = ShellWord(w)
	}
	return strings.Join(quoted, " ")
}

// ShellWord quotes a word where a POSIX shell would see more than a word in it.
func ShellWord(w string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_=./:,@%+", r)
	}
	if w != "" && strings.IndexFunc(w, func(r rune) bool { return !plain(r) }) < 0 {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

// Known prints a figure, or a dash if it is not known.
func Known(v *float64, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v)
}

// PortMapping prints ports as --port_mapping takes them.
func PortMapping(ports []train.PortMapping) string {
	pairs := make([]string, len(ports))
	for i, p := range ports {
		pairs[i] = strconv.Itoa(p.NodePort) + ":" + strconv.Itoa(p.ContainerPort)
	}
	return strings.Join(pairs, ",")
}
