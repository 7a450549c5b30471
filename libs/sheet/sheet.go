// Package sheet writes CSV for spreadsheets. What users name is text there, and never a formula.
package sheet

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"
)

// Write writes rows as CSV. A spreadsheet runs a cell that begins like a formula, so such text gets a quote before it;
// numbers stay as they are.
func Write(w io.Writer, rows [][]string) error {
	plain := make([][]string, len(rows))
	for i, row := range rows {
		plain[i] = make([]string, len(row))
		for k, cell := range row {
			plain[i][k] = text(cell)
		}
	}
	return csv.NewWriter(w).WriteAll(plain)
}

func text(cell string) string {
	if cell == "" || !strings.ContainsRune("=+-@\t\r\n|%＝＋－＠", []rune(cell)[0]) {
		return cell
	}
	if _, err := strconv.ParseFloat(cell, 64); err == nil {
		return cell
	}
	return "'" + cell
}
