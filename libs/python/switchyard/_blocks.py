"""Assigns the parameter blocks of a model to parameter servers. The scheduler's Go code has the same function."""

from typing import List, NamedTuple, Sequence


class Slice(NamedTuple):
    """A part of a parameter block, or all of it, that one parameter server holds."""

    block: int
    server: int
    offset: int
    size: int


def balance_blocks(sizes: Sequence[int], servers: int) -> List[Slice]:
    """The slices of blocks of these sizes (in any one unit) on so many servers, in the order of blocks and offsets.

    Each server holds and serves about as much (PAA of Optimus, EuroSys'18, section 5.3). With avg the mean load of a
    server, blocks go in descending order of size: one of at most 1 % of avg to the server with the fewest requests;
    one of at most avg to the server that it fills best without exceeding avg, or else to the emptiest; a larger one
    fills the emptiest servers up to avg, slice by slice, and its rest is placed like a block of that size. Of equals
    the first counts.
    """
    if servers < 1:
        raise ValueError("%d servers, want at least 1" % servers)
    if any(size < 0 for size in sizes):
        raise ValueError("a block has a negative size")
    balance = _Balance(sum(sizes), servers)
    for block in sorted(range(len(sizes)), key=lambda block: -sizes[block]):
        balance.place(block, sizes[block])
    return sorted(balance.placed, key=lambda slice: (slice.block, slice.offset))


class _Balance:
    """The servers while they fill. The mean load is total/servers; it is never divided, so that nothing is rounded."""

    def __init__(self, total: int, servers: int) -> None:
        self.total = total
        self.servers = servers
        self.load = [0] * servers
        self.requests = [0] * servers
        self.placed: List[Slice] = []

    def place(self, block: int, size: int) -> None:
        if size * self.servers * 100 <= self.total:
            self._put(block, 0, size, _first(self.requests))
            return
        offset = 0
        while (size - offset) * self.servers > self.total:
            emptiest = _first(self.load)
            room = -((self.load[emptiest] * self.servers - self.total) // self.servers)
            if room <= 0 or room >= size - offset:
                break
            self._put(block, offset, room, emptiest)
            offset += room
        self._put(block, offset, size - offset, self._best_fit(size - offset))

    def _best_fit(self, size: int) -> int:
        fitting = [i for i, load in enumerate(self.load) if (load + size) * self.servers <= self.total]
        if not fitting:
            return _first(self.load)
        return max(fitting, key=lambda i: (self.load[i], -i))

    def _put(self, block: int, offset: int, size: int, server: int) -> None:
        self.load[server] += size
        self.requests[server] += 1
        self.placed.append(Slice(block, server, offset, size))


def _first(values: Sequence[int]) -> int:
    return min(range(len(values)), key=lambda i: (values[i], i))
