package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// edits prints the requests to change the spec, and what became of them.
func (p *page) edits(all []train.Edited, now time.Time) {
	if len(all) == 0 {
		return
	}
	p.section("changed since")
	var lines []string
	for _, e := range all {
		what := EditWords(e)
		if e.Reason != "" {
			what += " (" + render.EscapeText(e.Reason) + ")"
		}
		lines = append(lines, strings.Join([]string{render.Clock(e.At, now), render.Cell(e.By, 24), what}, "\t"))
	}
	p.rows("AT\tBY\tWHAT", lines)
}

// EditWords says what became of a request to change a spec.
func EditWords(e train.Edited) string {
	var parts []string
	for _, k := range e.Keys {
		parts = append(parts, fmt.Sprintf("%s: %s -> %s", k.Key, value(k.Before), value(k.After)))
	}
	for _, r := range e.Refused {
		parts = append(parts, "refused: "+because(r))
	}
	return cmp.Or(strings.Join(parts, ", "), "as it was")
}

// value prints a value of a spec without the quotes of JSON.
func value(written string) string {
	const width = 80
	return cmp.Or(render.ClipText(render.EscapeText(strings.Trim(written, `"`)), width), "none")
}
