package ring

// chunk returns the bounds of one of the parts into which a vector is cut, one for each process. Parts differ by at
// most one number, and may be empty.
func chunk(length, parts, index int) (begin, end int) {
	return index * length / parts, (index + 1) * length / parts
}

// SumInOrder writes the sum of parts to out, bit for bit as AllReduce computes it
// when each part belongs to a process of its own. Floating-point addition is not
// associative; summing in the ring's order makes n workers in one process and n
// processes of one worker the same computation. out may be parts[0] only if it is the
// only part.
func SumInOrder(out []float64, parts [][]float64) {
	for c := range parts {
		begin, end := chunk(len(out), len(parts), c)
		sum := out[begin:end]
		copy(sum, parts[c][begin:end])
		for k := 1; k < len(parts); k++ {
			add(sum, parts[(c+k)%len(parts)][begin:end])
		}
	}
}

func add(sum, v []float64) {
	v = v[:len(sum)]
	for i := range sum {
		sum[i] += v[i]
	}
}
