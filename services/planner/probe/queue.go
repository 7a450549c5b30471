package probe

// queue is a heap of rows by value and, among equals, by number. A row whose value changes is inserted again; its
// old entry is skipped.
type queue []uint64

func (q *queue) push(key, row int32) {
	h := append(*q, uint64(uint32(key))<<32|uint64(uint32(row)))
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent] <= h[i] {
			break
		}
		h[parent], h[i] = h[i], h[parent]
		i = parent
	}
	*q = h
}

// pop returns the row of least value. keys holds the present value of each row.
func (q *queue) pop(keys []int32) (int32, bool) {
	for len(*q) > 0 {
		h := *q
		top := h[0]
		last := len(h) - 1
		h[0] = h[last]
		h = h[:last]
		*q = h
		h.sink()
		if row := int32(uint32(top)); keys[row] == int32(top>>32) {
			return row, true
		}
	}
	return 0, false
}

func (q queue) sink() {
	i := 0
	for {
		child := 2*i + 1
		if child >= len(q) {
			return
		}
		if child+1 < len(q) && q[child+1] < q[child] {
			child++
		}
		if q[i] <= q[child] {
			return
		}
		q[i], q[child] = q[child], q[i]
		i = child
	}
}
