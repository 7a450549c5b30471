package fabric

// Matrix holds rows of links, indexed by row and by link.
type Matrix struct {
	Rows [][]int32
	over [][]int32 // by link
}

// NewMatrix indexes rows over a number of links. No row has a link twice.
func NewMatrix(links int, rows [][]int32) *Matrix {
	m := &Matrix{Rows: rows, over: make([][]int32, links)}
	count, total := make([]int32, links), 0
	for _, row := range rows {
		total += len(row)
		for _, l := range row {
			count[l]++
		}
	}
	all := make([]int32, total)
	for l, n := range count {
		m.over[l], all = all[:0:n], all[n:]
	}
	for r, row := range rows {
		for _, l := range row {
			m.over[l] = append(m.over[l], int32(r))
		}
	}
	return m
}

// Links returns the number of links, with or without rows over them.
func (m *Matrix) Links() int { return len(m.over) }

// Over returns the rows over a link.
func (m *Matrix) Over(link int32) []int32 { return m.over[link] }

// Add appends a row.
func (m *Matrix) Add(row []int32) {
	for _, l := range row {
		m.over[l] = append(m.over[l], int32(len(m.Rows)))
	}
	m.Rows = append(m.Rows, row)
}

// Drop removes the last row.
func (m *Matrix) Drop() {
	last := len(m.Rows) - 1
	for _, l := range m.Rows[last] {
		m.over[l] = m.over[l][:len(m.over[l])-1]
	}
	m.Rows = m.Rows[:last]
}
