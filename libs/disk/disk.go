// Package disk says how much room a disk has, and keeps a reserve on it: room that is let go when the disk is full, so
// that what was promised can still be written down.
package disk

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Room is how much room the disk of a folder has.
type Room struct {
	Dir         string
	Free, Total unit.Bytes
}

// Of looks at the disk of a folder.
func Of(dir string) (Room, error) {
	var at unix.Statfs_t
	if err := unix.Statfs(dir, &at); err != nil {
		return Room{}, fmt.Errorf("look at the disk of %s: %w", dir, err)
	}
	size := unit.Bytes(at.Bsize)
	return Room{Dir: dir, Free: unit.Bytes(at.Bavail) * size, Total: unit.Bytes(at.Blocks) * size}, nil
}

// measure is what the bounds are multiples of: 64 MiB, less on a small disk.
func (r Room) measure() unit.Bytes { return min(64*unit.MiB, r.Total/20) }

// Full reports whether so little is left that the next write may fail.
func (r Room) Full() bool { return r.Free < r.measure() }

// Scarce reports whether no new job should begin to write: less is left than a released reserve gives, so what was
// released is left to the bus and to the ends of jobs.
func (r Room) Scarce() bool { return r.Free < 3*r.measure() }

// Ample reports whether a reserve can be taken and the disk is not scarce then.
func (r Room) Ample() bool { return r.Free > 4*r.measure() }

// String says how much is left.
func (r Room) String() string {
	return fmt.Sprintf("the disk of %s has %s of %s left", r.Dir, r.Free, r.Total)
}

// Err returns an error that names the disk, and that is ENOSPC.
func (r Room) Err() error { return fmt.Errorf("%s: %w", r, unix.ENOSPC) }
