package train

import (
	"iter"
	"strings"
)

// EditDistance returns the Levenshtein distance of two words; the suggestion for a mistyped name is the known name at
// the smallest distance.
func EditDistance(a, b string) int {
	x, y := []rune(a), []rune(b)
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i, r := range x {
		diagonal := row[0]
		row[0] = i + 1
		for j, s := range y {
			cost := 1
			if r == s {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(y)]
}

// NearMiss returns the known name that s was probably meant to be, or "". A blank name is none to offer.
func NearMiss(s string, known []string) string {
	best, at := max(len(s)/3, 2)+1, ""
	for _, k := range known {
		if d := EditDistance(s, k); d < best && strings.TrimSpace(k) != "" {
			best, at = d, k
		}
	}
	return at
}

// Filled replaces each ${name} in a text that is among some words. It leaves other names to the shell.
func Filled(text string, words map[string]string) string {
	var b strings.Builder
	for name, before := range Placeholders(text) {
		b.WriteString(before)
		if word, ok := words[name]; ok {
			b.WriteString(word)
		} else if name != "" {
			b.WriteString("${" + name + "}")
		}
	}
	return b.String()
}

// Placeholders yields each name in ${name} with the text before it, and at the end an empty name with the rest.
func Placeholders(text string) iter.Seq2[string, string] {
	return func(yield func(name, before string) bool) {
		rest, from := text, 0
		for {
			i := strings.Index(rest[from:], "${")
			if i < 0 {
				yield("", rest)
				return
			}
			i += from
			name, after, closed := strings.Cut(rest[i+2:], "}")
			if !closed || !ParameterName(name) {
				from = i + 2
				continue
			}
			if !yield(name, rest[:i]) {
				return
			}
			rest, from = after, 0
		}
	}
}

// ParameterName reports whether a name may stand for a parameter.
func ParameterName(name string) bool { return Identifier(name) && len(name) <= MaxIDLength }

// Identifier reports whether a name is letters, digits and '_', and does not begin with a digit.
func Identifier(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// Words returns ids, states and the like as plain words.
func Words[S ~string](list []S) []string {
	words := make([]string, len(list))
	for i, s := range list {
		words[i] = string(s)
	}
	return words
}

// JoinOr joins words by commas, and the last one by "or".
func JoinOr(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
