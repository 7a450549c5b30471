// Package docs runs what the documents tell a reader to run.
package docs

import (
	"fmt"
	"strings"
)

// A block is the fenced code of a Markdown page.
type block struct {
	line     int // of its first line of code, from 1
	language string
	text     string // without the common indentation of its fence
}

// first returns the first line of code, which names the block in the tables of this package.
func (b block) first() string {
	line, _, _ := strings.Cut(b.text, "\n")
	return line
}

// blocks returns the fenced code of a page, in order.
func blocks(page string) ([]block, error) {
	var found []block
	var open *block
	var indent string
	for i, line := range strings.Split(page, "\n") {
		bare := strings.TrimLeft(line, " ")
		language, fence := strings.CutPrefix(bare, "```")
		switch {
		case fence && open == nil:
			open = &block{line: i + 2, language: strings.TrimSpace(language)}
			indent = line[:len(line)-len(bare)]
		case fence:
			found, open = append(found, *open), nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	if open != nil {
		return nil, fmt.Errorf("line %d: a fence that no line closes", open.line-1)
	}
	return found, nil
}
