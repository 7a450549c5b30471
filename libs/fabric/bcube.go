package fabric

import (
	"fmt"
	"slices"
)

// bcube is BCube(n, k): servers with k+1 ports, whose numbers have k+1 digits of base n; a switch of level l joins
// those that differ only in digit l.
type bcube struct {
	base, digits int
	directed     bool
}

func (b bcube) servers() int {
	n := 1
	for range b.digits {
		n *= b.base
	}
	return n
}

// BCube returns the network of that name, and the k+1 parallel paths between all pairs of servers as BCube itself
// routes.
func BCube(n, k int, directed bool) (*Topology, Paths, error) {
	if n < 2 || k < 1 || k > 7 || n > 64 {
		return nil, Paths{}, fmt.Errorf("BCube of %d ports and %d levels: want 2 to 64 ports and 1 to 7 levels", n, k)
	}
	b := bcube{base: n, digits: k + 1, directed: directed}
	servers := b.servers()
	if servers > 1<<20 {
		return nil, Paths{}, fmt.Errorf("BCube of %d ports and %d levels has %d servers: want %d at most", n, k, servers, 1<<20)
	}
	t := &Topology{}
	for s := range servers {
		t.add(fmt.Sprintf("server-%d", s), Node)
	}
	for level := range b.digits {
		for s := range servers / n {
			t.add(fmt.Sprintf("switch-%d-%d", level, s), Rack+Tier(level))
		}
	}
	for s := range servers {
		weight := 1
		for level := range b.digits {
			without := s/(weight*n)*weight + s%weight
			t.link(s, servers+level*(servers/n)+without)
			weight *= n
		}
	}
	return t, b.paths(servers), nil
}

// paths returns the rounds of paths. In a round each server sends to the one whose digits are larger by the same
// amounts, changing them in the same order. Rounds in which all digits change, and which therefore cover every link,
// come first.
func (b bcube) paths(servers int) Paths {
	full := 1 // amounts without a zero
	for range b.digits {
		full *= b.base - 1
	}
	others := servers - 1 - full
	p := Paths{Links: servers * b.digits, Parts: 1, Rounds: (servers - 1) * b.digits}
	p.Count = int64(servers) * int64(p.Rounds)
	if b.directed {
		p.Links *= 2
	}
	p.Round = func(i int) [][]int32 {
		if i < full*b.digits {
			i = scattered(i, full*b.digits)
			return b.round(servers, b.amounts(i/b.digits, b.base-1, 1), i%b.digits)
		}
		i = scattered(i-full*b.digits, others*b.digits)
		return b.round(servers, b.partial(i/b.digits), i%b.digits)
	}
	return p
}

// amounts returns the digits of x, each raised by least.
func (b bcube) amounts(x, base, least int) []int {
	d := make([]int, b.digits)
	for i := range d {
		d[i], x = x%base+least, x/base
	}
	return d
}

// partial returns the x-th of the amounts with a zero that are not all zero: by the number of digits that stay, one
// server after the other.
func (b bcube) partial(x int) []int {
	for n := 1; ; n++ {
		d := b.amounts(n, b.base, 0)
		if slices.Contains(d, 0) {
			x--
		}
		if x < 0 {
			return d
		}
	}
}

// round changes the digits from start downwards, cyclically. A path whose first digit must stay takes a detour over the
// next server and changes the digit back at the end, so that the paths between two servers share no link.
func (b bcube) round(servers int, amounts []int, start int) [][]int32 {
	type step struct{ digit, amount int }
	var steps []step
	for i := range b.digits {
		digit := (start - i + b.digits) % b.digits
		if amounts[digit] != 0 {
			steps = append(steps, step{digit, amounts[digit]})
		}
	}
	if amounts[start] == 0 {
		steps = append([]step{{start, 1}}, append(steps, step{start, b.base - 1})...)
	}
	weight := make([]int, b.digits)
	for i, w := 0, 1; i < b.digits; i, w = i+1, w*b.base {
		weight[i] = w
	}
	rows := make([][]int32, servers)
	all := make([]int32, 0, servers*2*len(steps))
	for s := range servers {
		at, begin := s, len(all)
		for _, st := range steps {
			w := weight[st.digit]
			digit := at / w % b.base
			next := at + ((digit+st.amount)%b.base-digit)*w
			leave, enter := int32(at*b.digits+st.digit), int32(next*b.digits+st.digit)
			if b.directed {
				leave, enter = Direction(leave, false), Direction(enter, true)
			}
			all, at = append(all, leave, enter), next
		}
		rows[s] = all[begin:len(all):len(all)]
	}
	return rows
}
