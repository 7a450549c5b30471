package render

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// Guard passes text on to a terminal or a file, and makes visible what a terminal would obey: everything that a command
// prints goes through one, since names, states and errors may come from others. Line ends and tabs stay. The escapes
// are those of JSON, so JSON stays the same value.
type Guard struct {
	to io.Writer

	mu sync.Mutex
	// rest begins a character whose end has not come.
	rest []byte
}

// NewGuard guards a writer.
func NewGuard(to io.Writer) *Guard { return &Guard{to: to} }

// Raw returns what a guarded writer writes to, for the drawing of the program itself, for files, and for what is
// escaped already.
func Raw(w io.Writer) io.Writer {
	if g, guarded := w.(*Guard); guarded {
		return g.to
	}
	return w
}

// Write implements io.Writer.
func (g *Guard) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	text := p
	if len(g.rest) > 0 {
		text = append(g.rest, p...)
	}
	whole := lastRune(text)
	safe := harmless(text[:whole])
	g.rest = append([]byte(nil), text[whole:]...)
	if _, err := io.WriteString(g.to, safe); err != nil {
		return 0, err
	}
	return len(p), nil
}

func harmless(text []byte) string {
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		switch {
		case r == '\n', r == '\t', r == '\r' && i+1 < len(text) && text[i+1] == '\n':
			b.WriteRune(r)
		case Obeyed(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r) // a byte that is not UTF-8 becomes U+FFFD
		}
		i += size
	}
	return b.String()
}
