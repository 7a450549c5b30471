package train

// EditDistance returns the Levenshtein distance of two words; the suggestion for a mistyped name is the known name at
// the smallest distance.
func EditDistance(a, b string) int {
	x, y := []rune(a), []rune(b)
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i, r := range x {
		diagonal := row[0]
		row[0] = i + 1
		for j, s := range y {
			cost := 1
			if r == s {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(y)]
}

// NearMiss returns the known name that s was probably meant to be, or "".
func NearMiss(s string, known []string) string {
	best, at := max(len(s)/3, 2)+1, ""
	for _, k := range known {
		if d := EditDistance(s, k); d < best {
			best, at = d, k
		}
	}
	return at
}
