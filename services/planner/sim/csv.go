package sim

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
)

// table is a CSV file with a header; columns are found by name, since their order varies.
type table struct {
	name    string
	columns map[string]int
	rows    [][]string
}

func parseTable(name string, data []byte, want ...string) (table, error) {
	records, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		return table{}, fmt.Errorf("parse %s: %w", name, err)
	}
	if len(records) == 0 {
		return table{}, fmt.Errorf("parse %s: it is empty, want columns %v", name, want)
	}
	t := table{name: name, columns: map[string]int{}, rows: records[1:]}
	for i, column := range records[0] {
		t.columns[column] = i
	}
	for _, column := range want {
		if _, ok := t.columns[column]; !ok {
			return table{}, fmt.Errorf("parse %s: no column %q, only %v", name, column, records[0])
		}
	}
	return t, nil
}

func (t table) text(row int, column string) string { return t.rows[row][t.columns[column]] }

// numbers reads columns of a row.
func (t table) numbers(row int, columns ...string) ([]float64, error) {
	values := make([]float64, len(columns))
	for i, column := range columns {
		x, err := strconv.ParseFloat(t.text(row, column), 64)
		if err != nil {
			return nil, fmt.Errorf("parse %s: row %d, column %s: %w", t.name, row+2, column, err)
		}
		values[i] = x
	}
	return values, nil
}

// between gives the two of ascending xs around x and the weight of the upper one; at the ends and beyond them, the end.
func between(xs []float64, x float64) (low, high int, weight float64) {
	at, exact := slices.BinarySearch(xs, x)
	switch {
	case exact:
		return at, at, 0
	case at == 0:
		return 0, 0, 0
	case at == len(xs):
		return at - 1, at - 1, 0
	}
	return at - 1, at, (x - xs[at-1]) / (xs[at] - xs[at-1])
}
