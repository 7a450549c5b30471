package train

import (
	"fmt"
	"math"
	"slices"
)

// Slice is a part of a parameter block, or all of it, that one parameter server holds. A worker pushes and pulls each slice with a request of its own.
type Slice struct {
	Block  int   `json:"block"`
	Server int   `json:"server"`
	Offset int64 `json:"offset"`
	Size   int64 `json:"size"`
}

// BalanceBlocks assigns the parameter blocks of a model to its servers so that each holds and serves about as much (Optimus's PAA, EuroSys'18, section
// 5.3). With avg the mean load of a server, blocks go in descending order of size: one of at most 1 % of avg to the server with the fewest requests; one of
// at most avg to the server that it fills best without exceeding avg, or else to the emptiest; a larger one fills the emptiest servers up to avg, slice
// by slice, and its rest is placed like a block of that size. Of equals the first counts. Sizes are in any one unit; the slices come in the order of
// blocks and offsets. libs/python has the same function.
func BalanceBlocks(sizes []int64, servers int) ([]Slice, error) {
	b := blockBalance{load: make([]int64, max(servers, 0)), requests: make([]int, max(servers, 0)), servers: int64(servers)}
	order := make([]int, len(sizes))
	for i, size := range sizes {
		if size < 0 || size > math.MaxInt64/max(b.servers, 1)/100-b.total {
			return nil, fmt.Errorf("balance blocks: size %d of block %d is out of range", size, i)
		}
		b.total += size
		order[i] = i
	}
	if servers < 1 {
		return nil, fmt.Errorf("balance blocks: %d servers, want at least 1", servers)
	}
	slices.SortStableFunc(order, func(x, y int) int { return int(min(max(sizes[y]-sizes[x], -1), 1)) })
	for _, block := range order {
		b.place(block, sizes[block])
	}
	slices.SortFunc(b.placed, func(x, y Slice) int {
		if x.Block != y.Block {
			return x.Block - y.Block
		}
		return int(min(max(x.Offset-y.Offset, -1), 1))
	})
	return b.placed, nil
}

// blockBalance is the servers while they fill. The mean load is total/servers; it is never divided, so that every language gives the same.
type blockBalance struct {
	total, servers int64
	load           []int64
	requests       []int
	placed         []Slice
}

func (b *blockBalance) place(block int, size int64) {
	if size*b.servers*100 <= b.total {
		b.put(block, 0, size, first(b.requests))
		return
	}
	offset := int64(0)
	for (size-offset)*b.servers > b.total {
		emptiest := first(b.load)
		room := (b.total - b.load[emptiest]*b.servers + b.servers - 1) / b.servers // rounded up, so that no slice of one unit is left over
		if room <= 0 || room >= size-offset {
			break
		}
		b.put(block, offset, room, emptiest)
		offset += room
	}
	b.put(block, offset, size-offset, b.bestFit(size-offset))
}

// bestFit is the server with the least room left after it takes so much, or the emptiest where it fits none.
func (b *blockBalance) bestFit(size int64) int {
	best := -1
	for i, load := range b.load {
		if (load+size)*b.servers <= b.total && (best < 0 || load > b.load[best]) {
			best = i
		}
	}
	if best < 0 {
		return first(b.load)
	}
	return best
}

func (b *blockBalance) put(block int, offset, size int64, server int) {
	b.load[server] += size
	b.requests[server]++
	b.placed = append(b.placed, Slice{Block: block, Server: server, Offset: offset, Size: size})
}

// first is the place of the smallest, the first of them.
func first[T int | int64](values []T) int {
	least := 0
	for i, v := range values {
		if v < values[least] {
			least = i
		}
	}
	return least
}
