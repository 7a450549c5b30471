package fabric

// Paths are the candidate paths of a topology, each a row of links. There may be billions, so they come in rounds, each
// of which covers all links about evenly.
type Paths struct {
	// Links is the number of links of one part. The whole consists of Parts that share no path and look alike: link l
	// of part p has the index p*Links + l.
	Links int
	Parts int
	// Count is the number of candidates in all rounds of all parts.
	Count int64
	// Rounds is the number of rounds; Round returns one of them, with the links of part 0.
	Rounds int
	Round  func(i int) [][]int32
}

// Explicit makes candidates of existing rows.
func Explicit(links int, rows [][]int32) Paths {
	return Paths{Links: links, Parts: 1, Count: int64(len(rows)), Rounds: 1, Round: func(int) [][]int32 { return rows }}
}

// scattered returns the i-th of 0..n-1 in an order in which neighbours are far apart.
func scattered(i, n int) int {
	step := int(float64(n) * 0.6180339887)
	for step = max(step, 1); gcd(step, n) != 1; step++ {
	}
	return i * step % n
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
