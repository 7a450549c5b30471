package servers

import (
	"cmp"
	"slices"
)

// Slice is a part of a parameter block, or all of it, that one server sums. A worker pushes and pulls each slice with a
// request of its own.
type Slice struct {
	Block, Server, Offset, Size int
}

// Balance assigns parameter blocks of these sizes to servers, so that each server sums and answers about as much (PAA
// of Optimus, EuroSys'18, section 5.3). avg is the mean load of a server. Blocks go in descending order of size. A
// block of at most 1 % of avg goes to the server with the fewest requests; a block of at most avg to the server that it
// fills best without exceeding avg, or else to the emptiest. A larger block fills the emptiest servers up to avg, slice
// by slice, and its rest is placed like a block of that size. The first of equals counts. The slices come in the order
// of blocks and offsets. switchyard.balance_blocks of the Python library gives the same.
func Balance(sizes []int, servers int) []Slice {
	b := balance{load: make([]int, servers), requests: make([]int, servers)}
	order := make([]int, len(sizes))
	for i, size := range sizes {
		b.total += size
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(sizes[y], sizes[x]) })
	for _, block := range order {
		b.place(block, sizes[block])
	}
	slices.SortFunc(b.placed, func(x, y Slice) int {
		return cmp.Or(cmp.Compare(x.Block, y.Block), cmp.Compare(x.Offset, y.Offset))
	})
	return b.placed
}

// balance is the servers while they fill. The mean load is total over the number of servers; it is never divided, so
// that every language gives the same.
type balance struct {
	total          int
	load, requests []int
	placed         []Slice
}

func (b *balance) place(block, size int) {
	servers := len(b.load)
	if size*servers*100 <= b.total {
		b.put(block, 0, size, least(b.requests))
		return
	}
	offset := 0
	for (size-offset)*servers > b.total {
		emptiest := least(b.load)
		room := (b.total - b.load[emptiest]*servers + servers - 1) / servers // rounded up: no slice of one is left over
		if room <= 0 || room >= size-offset {
			break
		}
		b.put(block, offset, room, emptiest)
		offset += room
	}
	b.put(block, offset, size-offset, b.bestFit(size-offset))
}

// bestFit is the server with the least room left after it takes so much, or the emptiest if none has the room.
func (b *balance) bestFit(size int) int {
	best := -1
	for i, load := range b.load {
		if (load+size)*len(b.load) <= b.total && (best < 0 || load > b.load[best]) {
			best = i
		}
	}
	if best < 0 {
		return least(b.load)
	}
	return best
}

func (b *balance) put(block, offset, size, server int) {
	b.load[server] += size
	b.requests[server]++
	b.placed = append(b.placed, Slice{Block: block, Server: server, Offset: offset, Size: size})
}

// least is the place of the smallest value, the first of equals.
func least(values []int) int {
	return slices.Index(values, slices.Min(values))
}
