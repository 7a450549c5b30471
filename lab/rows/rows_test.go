package rows

import (
	"strings"
	"testing"
	"testing/fstest"
)

// TestErrorsNameThePlace: an error names the file, the place and what is wanted there.
func TestErrorsNameThePlace(t *testing.T) {
	files := fstest.MapFS{}
	for name, text := range map[string]string{
		"good.csv": "b,a\n1,2\n", "empty.csv": "", "other.csv": "x,y\n1,2\n", "short.csv": "a,b\n1\n", "word.csv": "a,b\n1,2\none,2\n", "negative.csv": "a,b\n-1,2\n", "nan.csv": "a,b\nNaN,2\n",
	} {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	for name, want := range map[string]string{
		"good.csv":     "",
		"none.csv":     "read none.csv: file does not exist",
		"empty.csv":    "parse empty.csv: it is empty, want the columns a, b",
		"other.csv":    `parse other.csv: no column "a" among ["x" "y"], want the columns a, b`,
		"short.csv":    "parse short.csv: record on line 2: wrong number of fields",
		"word.csv":     `parse word.csv: row 3, column a: "one" is no number of 0 or more`,
		"negative.csv": `parse negative.csv: row 2, column a: "-1" is no number of 0 or more`,
		"nan.csv":      `parse nan.csv: row 2, column a: "NaN" is no number of 0 or more`,
	} {
		all, err := Read(files, name, "a", "b")
		for _, row := range all {
			if err == nil {
				_, err = row.Number("a")
			}
		}
		if want == "" && err != nil || want != "" && (err == nil || strings.TrimSpace(err.Error()) != want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}
