package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
)

// change replaces lines [from,to) of an object if a toggle is on.
type change struct {
	from, to int
	lines    []string
	toggle   string
}

// merge returns the object with its form under each toggle that changes it: the lines that differ stand in if and else.
func merge(base object, variants map[string]object) (string, error) {
	lines := difflib.SplitLines(strings.TrimSuffix(base.yaml, "\n"))
	var changes []change
	for _, toggle := range toggles() {
		variant, changed := variants[toggle]
		if !changed {
			continue
		}
		other := difflib.SplitLines(strings.TrimSuffix(variant.yaml, "\n"))
		for _, op := range difflib.NewMatcherWithJunk(lines, other, false, nil).GetOpCodes() {
			if op.Tag != 'e' {
				changes = append(changes, change{from: op.I1, to: op.I2, lines: other[op.J1:op.J2], toggle: toggle})
			}
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.from, b.from) })
	var out strings.Builder
	done := 0
	for _, c := range changes {
		if c.from < done {
			return "", fmt.Errorf("the component %s changes lines of %s that another component changes, too: a chart cannot have both", c.toggle, base.key())
		}
		out.WriteString(strings.Join(lines[done:c.from], ""))
		out.WriteString(c.text(lines[c.from:c.to]))
		done = c.to
	}
	out.WriteString(strings.Join(lines[done:], ""))
	return out.String(), nil
}

// text returns the change as a template around the lines that it replaces.
func (c change) text(replaced []string) string {
	old, changed := strings.Join(replaced, ""), strings.Join(c.lines, "")
	switch {
	case old == "":
		return when(c.toggle, changed)
	case changed == "":
		return "{{- if not .Values." + c.toggle + " }}\n" + old + "{{- end }}\n"
	default:
		return "{{- if .Values." + c.toggle + " }}\n" + changed + "{{- else }}\n" + old + "{{- end }}\n"
	}
}

// when is text for a toggle that is on.
func when(toggle, text string) string {
	return "{{- if .Values." + toggle + " }}\n" + text + "{{- end }}\n"
}
