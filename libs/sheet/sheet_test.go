package sheet_test

import (
	"encoding/csv"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/sheet"
)

func TestFormulasAreText(t *testing.T) {
	rows := [][]string{{"name", "joules", "change"}, {`=HYPERLINK("http://evil","x")`, "-1.5e3", "+2"}, {"@SUM(A1)", "-", "+x"}, {"\t=1", "", "a=b"}}
	var b strings.Builder
	if err := sheet.Write(&b, rows); err != nil {
		t.Fatal(err)
	}
	want := "name,joules,change\n\"'=HYPERLINK(\"\"http://evil\"\",\"\"x\"\")\",-1.5e3,+2\n'@SUM(A1),'-,'+x\n'\t=1,,a=b\n"
	if got := b.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// No cell that is read back begins a formula, whatever was written.
func FuzzWrite(f *testing.F) {
	f.Add("=1+1", "-2")
	f.Add("\r\n@x", "'")
	f.Fuzz(func(t *testing.T, a, b string) {
		var text strings.Builder
		if err := sheet.Write(&text, [][]string{{a, b, "end"}}); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(strings.NewReader(text.String())).ReadAll()
		if err != nil || len(rows) != 1 || len(rows[0]) != 3 {
			t.Fatalf("%q: %q, %v", text.String(), rows, err)
		}
		for _, cell := range rows[0][:2] {
			if strings.HasPrefix(cell, "=") || strings.HasPrefix(cell, "@") {
				t.Errorf("the cell %q is a formula", cell)
			}
		}
	})
}
