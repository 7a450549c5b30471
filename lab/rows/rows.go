// Package rows reads measurements from CSV files with a heading. Columns are found by name, since their order varies.
package rows

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"
)

// Row is a row of a file.
type Row struct {
	file    string
	line    int
	columns map[string]int
	cells   []string
}

// Read reads all rows of a file, which must have the wanted columns.
func Read(files fs.FS, name string, want ...string) ([]Row, error) {
	data, err := fs.ReadFile(files, name)
	if err != nil {
		if of := new(fs.PathError); errors.As(err, &of) {
			err = of.Err // the rest repeats the name
		}
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return Parse(name, data, want...)
}

// Parse reads all rows of a file's content, which must have the wanted columns.
func Parse(name string, data []byte, want ...string) ([]Row, error) {
	lines, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", name, err)
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("parse %s: it is empty, want the columns %s", name, strings.Join(want, ", "))
	}
	columns := map[string]int{}
	for i, column := range lines[0] {
		columns[column] = i
	}
	for _, column := range want {
		if _, ok := columns[column]; !ok {
			return nil, fmt.Errorf("parse %s: no column %q among %q, want the columns %s", name, column, lines[0],
				strings.Join(want, ", "))
		}
	}
	all := make([]Row, 0, len(lines)-1)
	for i, cells := range lines[1:] {
		all = append(all, Row{file: name, line: i + 2, columns: columns, cells: cells})
	}
	return all, nil
}

// Columns returns the names of the columns, in no order.
func (r Row) Columns() []string {
	var names []string
	for name := range r.columns {
		names = append(names, name)
	}
	return names
}

// Where returns the file and line of the row, for messages.
func (r Row) Where() string { return fmt.Sprintf("%s: row %d", r.file, r.line) }

// Text returns a cell, empty for a missing column.
func (r Row) Text(column string) string {
	if i, ok := r.columns[column]; ok {
		return strings.TrimSpace(r.cells[i])
	}
	return ""
}

// Number returns a cell that holds a number of 0 or more.
func (r Row) Number(column string) (float64, error) {
	x, err := strconv.ParseFloat(r.Text(column), 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
		return 0, fmt.Errorf("parse %s, column %s: %q is no number of 0 or more", r.Where(), column, r.Text(column))
	}
	return x, nil
}

// Numbers returns cells that hold numbers of any sign.
func (r Row) Numbers(columns ...string) ([]float64, error) {
	values := make([]float64, len(columns))
	for i, column := range columns {
		x, err := strconv.ParseFloat(r.Text(column), 64)
		if err != nil {
			return nil, fmt.Errorf("parse %s, column %s: %w", r.Where(), column, err)
		}
		values[i] = x
	}
	return values, nil
}
