package busserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// Cut says in words what a stream has lost on the disk.
type Cut struct {
	Stream string
	Words  string
}

// damagedFolder holds the blocks as they were before something was cut out of them.
const damagedFolder = "damaged"

// damaged is a block of a stream with damaged messages.
type damaged struct {
	*block
	stream, path string
	damages      []damage
}

// mend cuts damaged messages out of the streams while no server has them open. A server that opens them drops all that
// is behind them in the same file, up to 8 MB. What is unreadable at the end of a stream is an unfinished write, which
// the server removes.
func mend(dir string, log *slog.Logger) ([]Cut, error) {
	found, err := look(dir, func() {})
	if err != nil {
		return nil, err
	}
	var cuts []Cut
	for _, d := range found {
		name := fmt.Sprintf("%s-%s-%s", d.stream, time.Now().UTC().Format("20060102T150405Z"), filepath.Base(d.path))
		kept := filepath.Join(dir, damagedFolder, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o700), installation.WriteFile(kept, d.data))
		if err == nil {
			err = replaceBlock(d.path, d.without(d.damages))
		}
		if err != nil {
			return nil, fmt.Errorf("cut damaged messages out of %s: %w", d.stream, err)
		}
		cut := Cut{d.stream, fmt.Sprintf("had damaged messages, which were cut out: %s (the file as it was: %s)", d.words(), kept)}
		log.Error("messages were damaged on the disk, and were cut out", "stream", cut.Stream, "cause", cut.Words)
		cuts = append(cuts, cut)
	}
	return cuts, nil
}

// look finds the damaged blocks below the folder of a server. It calls rest after each block.
func look(dir string, rest func()) (found []damaged, err error) {
	streams, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "*"))
	if err != nil {
		return nil, fmt.Errorf("look for streams: %w", err)
	}
	for _, folder := range streams {
		paths, err := filepath.Glob(filepath.Join(folder, "msgs", "*.blk"))
		if err != nil {
			return nil, fmt.Errorf("look for the blocks of %s: %w", folder, err)
		}
		newest := slices.MaxFunc(append(paths, "0.blk"), func(x, y string) int { return cmp.Compare(indexOf(x), indexOf(y)) })
		for _, path := range paths {
			d := damaged{stream: filepath.Base(folder), path: path}
			if err := d.read(path == newest); err != nil {
				return nil, fmt.Errorf("check the messages of %s: %w", d.stream, err)
			}
			if len(d.damages) > 0 {
				found = append(found, d)
			}
			rest()
		}
	}
	return found, nil
}

// indexOf returns the number in the name of a block.
func indexOf(path string) int {
	n, _ := strconv.Atoi(strings.TrimSuffix(filepath.Base(path), ".blk"))
	return n
}

// read reads a block and finds its damages. A block without any whole message is left to the server.
func (d *damaged) read(newest bool) error {
	data, err := os.ReadFile(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the server has just removed it
	}
	if err != nil {
		return err
	}
	if d.block, err = newBlock(d.stream, indexOf(d.path), data); err != nil {
		return err
	}
	d.damages = d.block.damages()
	if n := len(d.damages); n > 0 && (newest && d.damages[n-1].to == len(data) || d.damages[0].to-d.damages[0].from == len(data)) {
		d.damages = d.damages[:n-1]
	}
	return nil
}

func (d *damaged) words() string {
	var words []string
	for _, one := range d.damages {
		words = append(words, one.String())
	}
	return strings.Join(words, "; ")
}

// scrubRest is the pause after each block that Scrub reads: at most 160 MB a second.
const scrubRest = 50 * time.Millisecond

// Scrub checks all messages on the disk while the server works. If some are damaged it closes the streams for a moment,
// cuts them out, and opens the streams again. Clients stay connected.
func (s *Server) Scrub(ctx context.Context, log *slog.Logger) ([]Cut, error) {
	rest := func() { tick.Pause(ctx, scrubRest) }
	found, err := look(s.dir, rest)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	tick.Pause(ctx, time.Second)
	// The server may just have written what was read: damage is there at the second look, too.
	if found, err = look(s.dir, rest); err != nil || len(found) == 0 || ctx.Err() != nil {
		return nil, err
	}
	var cuts []Cut
	return cuts, s.reopen(func() (err error) {
		cuts, err = mend(s.dir, log)
		return err
	})
}

// replaceBlock changes a block. The server then reads the blocks themselves, without an index.
func replaceBlock(path string, after []byte) error {
	if err := os.Remove(filepath.Join(filepath.Dir(path), "index.db")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return installation.WriteFile(path, after)
}

// String says which messages are gone.
func (d damage) String() string {
	words := fmt.Sprintf("%d bytes behind message %d", d.to-d.from, d.after)
	if n := d.before - d.after - 1; d.before > d.after {
		words = fmt.Sprintf("%d messages between %d and %d", n, d.after, d.before)
	}
	if d.subject != "" {
		words += ", the first of " + d.subject
	}
	return words
}
