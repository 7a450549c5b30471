package proxy

import (
	"os"
	"syscall"
	"time"
)

// file is a checkpoint as the file system describes it.
type file struct {
	path  string
	size  int64
	at    time.Time
	inode uint64
}

// checkpoints looks for the files that a program saves. It compares times of files with each other only: the clock of
// a file server may differ from this machine's.
type checkpoints struct {
	Sight
	patterns []string
	// seen is the newest file at the last look, reported the newest one that was reported or was there at the start.
	seen, reported file
	// unsure counts the looks since reported at which a newer file may have been incomplete.
	unsure int
}

// mostUnsure is the number of looks after which a file counts as complete although it is written all the time.
const mostUnsure = 60

// begin takes what is there as old.
func (c *checkpoints) begin() { c.reported = c.newest() }

// HasCheckpoint reports whether a file of one of the patterns exists.
func HasCheckpoint(sight Sight, patterns []string) bool {
	c := checkpoints{Sight: sight, patterns: patterns}
	return c.newest().path != ""
}

// newest returns the newest file of all patterns; the zero value if there is none.
func (c *checkpoints) newest() file {
	var last file
	for _, pattern := range c.patterns {
		for _, name := range c.glob(pattern) {
			if f := fileAt(name); f.at.After(last.at) {
				last = f
			}
		}
	}
	return last
}

// fileAt describes a file; the zero value if it is not there.
func fileAt(name string) file {
	info, err := os.Stat(name)
	if err != nil {
		return file{}
	}
	f := file{path: name, size: info.Size(), at: info.ModTime()}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		f.inode = s.Ino
	}
	return f
}

// look returns a file that is newer than all before, once it is complete: it has not changed since the last look,
// though a still newer one may have come, or it was renamed to the name of an older one.
func (c *checkpoints) look() (file, bool) {
	before := c.seen
	c.seen = c.newest()
	if !c.seen.at.After(c.reported.at) {
		return file{}, false
	}
	c.unsure++
	if c.seen != before && before.at.After(c.reported.at) && fileAt(before.path) == before {
		c.reported, c.unsure = before, 0
		return before, true
	}
	renamed := c.seen.path == before.path && c.seen.inode != before.inode
	if c.seen != before && !renamed && c.unsure < mostUnsure {
		return file{}, false
	}
	c.reported, c.unsure = c.seen, 0
	return c.seen, true
}

// last returns the newest file if it was not reported. The programs have ended: nothing changes it any more.
func (c *checkpoints) last() (file, bool) {
	c.seen = c.newest()
	return c.seen, c.seen.at.After(c.reported.at)
}
