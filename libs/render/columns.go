package render

import (
	"bytes"
	"io"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// gap is the space between two columns.
const gap = 2

// Width returns how many columns of a terminal a text takes: characters of East Asian scripts and emoji two each,
// combining marks none.
func Width(s string) int {
	columns := 0
	for _, r := range s {
		if r < unicode.MaxASCII {
			columns++
			continue
		}
		kind := width.LookupRune(r).Kind()
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case kind == width.EastAsianWide || kind == width.EastAsianFullwidth:
			columns += 2
		default:
			columns++
		}
	}
	return columns
}

// Columns aligns the lines of a table whose cells end with tabs, as text/tabwriter does, by their width on a terminal.
// A column goes on as long as lines have a cell in it. Flush writes the table.
type Columns struct {
	To   io.Writer
	text bytes.Buffer
}

// Write implements io.Writer.
func (c *Columns) Write(text []byte) (int, error) { return c.text.Write(text) }

// Flush writes what was written, aligned.
func (c *Columns) Flush() error {
	lines := strings.SplitAfter(c.text.String(), "\n")
	c.text.Reset()
	rows := make([][]string, len(lines))
	for i, line := range lines {
		rows[i] = strings.Split(line, "\t")
	}
	for column, more := 0, true; more; column++ {
		more = false
		for from := 0; from < len(rows); {
			to, widest := from, 0
			for ; to < len(rows) && column < len(rows[to])-1; to++ {
				widest = max(widest, Width(rows[to][column]))
			}
			for _, row := range rows[from:to] {
				row[column] += strings.Repeat(" ", widest+gap-Width(row[column]))
			}
			more, from = more || to > from, max(to, from+1)
		}
	}
	for _, row := range rows {
		if _, err := io.WriteString(c.To, strings.Join(row, "")); err != nil {
			return err
		}
	}
	return nil
}
