package train

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// FamilyKey identifies jobs that teach each other how long they take: one tenant's runs of the same code in the same
// image on the same data. Values of flags, numbers and the environment do not count, so the jobs of a sweep and the
// trials of an experiment are one family. It is empty if the spec neither names a family nor a program.
func (s Spec) FamilyKey() string {
	if s.Family != "" {
		return fmt.Sprintf("%q %q", s.Tenant, s.Family)
	}
	program := append(programWords(s.Command), s.ScriptPath)
	if !slices.ContainsFunc(append(program, s.Image), func(word string) bool { return word != "" }) {
		return ""
	}
	code := append(program, s.Image, cmp.Or(s.WorkDir, s.CustomDir, s.Upload), s.CustomDir)
	return fmt.Sprintf("%q %q %q %d %s", s.Tenant, code, s.DatasetsDir, s.TrainingSetSize, s.SpeedKind())
}

// programWords returns the words of a command that name a program: no flags, values of flags, assignments or numbers.
// The text of a shell is read as a command of its own.
func programWords(command []string) []string {
	var words []string
	for i, word := range command {
		before := ""
		if i > 0 {
			before = command[i-1]
		}
		switch {
		case before == "-c":
			words = append(words, programWords(strings.Fields(word))...)
		case before == "-m" || isProgram(word):
			words = append(words, word)
		case strings.HasPrefix(word, "-") || strings.Contains(word, "=") || isNumber(word):
		case strings.HasPrefix(before, "-") && !strings.Contains(before, "="):
		default:
			words = append(words, word)
		}
	}
	return words
}

// isProgram recognises a program even where it stands behind a flag without a value.
func isProgram(word string) bool {
	return !strings.HasPrefix(word, "-") && slices.Contains([]string{".py", ".sh", ".jar", ".jl", ".R", ".lua", ".rb"}, path.Ext(word))
}

func isNumber(word string) bool {
	_, err := strconv.ParseFloat(word, 64)
	return err == nil
}
