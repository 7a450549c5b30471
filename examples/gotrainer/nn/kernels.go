package nn

// addScaledRows adds scale[k] times row k of rows to out, for every k. Each row is as long as out. It takes four rows
// at a time, because a load and a store of out for every product would cost more than the product itself.
func addScaledRows(out, scale, rows []float64) {
	width := len(out)
	k := 0
	for ; k+4 <= len(scale); k += 4 {
		s0, s1, s2, s3 := scale[k], scale[k+1], scale[k+2], scale[k+3]
		r0 := rows[k*width:][:width]
		r1 := rows[(k+1)*width:][:width]
		r2 := rows[(k+2)*width:][:width]
		r3 := rows[(k+3)*width:][:width]
		for j := range out {
			out[j] += s0*r0[j] + s1*r1[j] + s2*r2[j] + s3*r3[j]
		}
	}
	for ; k < len(scale); k++ {
		s, r := scale[k], rows[k*width:][:width]
		for j := range out {
			out[j] += s * r[j]
		}
	}
}

// dotRows writes the dot product of v with each row of rows to out. Each row is as
// long as v. Four sums run side by side, so that the processor need not wait for one
// addition before the next.
func dotRows(out, v, rows []float64) {
	width := len(v)
	k := 0
	for ; k+4 <= len(out); k += 4 {
		r0 := rows[k*width:][:width]
		r1 := rows[(k+1)*width:][:width]
		r2 := rows[(k+2)*width:][:width]
		r3 := rows[(k+3)*width:][:width]
		var s0, s1, s2, s3 float64
		for j, x := range v {
			s0 += x * r0[j]
			s1 += x * r1[j]
			s2 += x * r2[j]
			s3 += x * r3[j]
		}
		out[k], out[k+1], out[k+2], out[k+3] = s0, s1, s2, s3
	}
	for ; k < len(out); k++ {
		r := rows[k*width:][:width]
		sum := 0.0
		for j, x := range v {
			sum += x * r[j]
		}
		out[k] = sum
	}
}

// transpose writes the rows x columns matrix m to out as columns x rows.
func transpose(out, m []float64, rows, columns int) {
	for i := range rows {
		for j, x := range m[i*columns:][:columns] {
			out[j*rows+i] = x
		}
	}
}

// squaredNorm is the sum of the squares of v.
func squaredNorm(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x * x
	}
	return sum
}
