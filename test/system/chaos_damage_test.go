package system

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/test/chaos"
)

// damage is one row of the table of damaged data: what is done to the files of the bus, which is stopped meanwhile
// unless it is live.
type damage struct {
	name string
	live bool
	// loses says that facts may be gone, if that is announced. A bucket is made again from what is left.
	loses bool
	do    func(s *storm) error
}

func damages() []damage {
	var rows []damage
	for _, bucket := range []string{"jobs", "attempts"} {
		rows = append(rows,
			damage{"bucket " + bucket + " removed", false, false, func(s *storm) error { return os.RemoveAll(s.stream("KV_" + bucket)) }},
			damage{"bucket " + bucket + " deleted live", true, false, func(s *storm) error { return s.js.DeleteStream(s.ctx, "KV_"+bucket) }},
		)
	}
	// Without its index the bus reads a stream from its blocks.
	spoilt := func(change func(data []byte) []byte) func(s *storm) error {
		return func(s *storm) error {
			return errors.Join(s.unindex(), s.spoil(change))
		}
	}
	return append(rows,
		damage{"index of JOBS removed", false, false, (*storm).unindex},
		damage{"64 bytes of JOBS flipped", false, true, spoilt(func(data []byte) []byte {
			for i := range data[len(data)/2:][:64] {
				data[len(data)/2+i] ^= 0xff
			}
			return data
		})},
		damage{"tail of JOBS cut", false, true, spoilt(func(data []byte) []byte { return data[:len(data)-100] })},
		damage{"garbage behind JOBS", false, true, spoilt(func(data []byte) []byte { return append(data, bytes.Repeat([]byte{0xa5}, 64)...) })},
	)
}

// stream returns the folder of a stream.
func (s *storm) stream(name string) string {
	return filepath.Join(s.dir, "bus", "jetstream", identity.Account, "streams", name)
}

func (s *storm) unindex() error {
	return os.RemoveAll(filepath.Join(s.stream("JOBS"), "msgs", "index.db"))
}

// spoil changes the newest block of the facts of jobs.
func (s *storm) spoil(change func(data []byte) []byte) error {
	blocks, err := filepath.Glob(filepath.Join(s.stream("JOBS"), "msgs", "*.blk"))
	if err != nil || len(blocks) == 0 {
		return fmt.Errorf("%w: the stream has no blocks", errors.Join(err, errNothingToHit))
	}
	newest := blocks[len(blocks)-1]
	data, err := os.ReadFile(newest)
	if err != nil {
		return err
	}
	return os.WriteFile(newest, change(data), 0o600)
}

// alarm is a line that tells an operator of damage.
var alarm = regexp.MustCompile(`level=ERROR msg="[^"]*(lost|missing|made again|differ|damage|corrupt|gap)[^"]*"`)

// said returns the first line about damage in the logs behind the given sizes.
func (s *storm) said(sizes map[string]int) string {
	for _, path := range s.logs() {
		data, err := os.ReadFile(path)
		if err == nil && len(data) > sizes[path] {
			if line := alarm.Find(data[sizes[path]:]); line != nil {
				return filepath.Base(path) + ": " + string(line)
			}
		}
	}
	return ""
}

func (s *storm) logs() []string {
	logs, _ := filepath.Glob(filepath.Join(s.dir, "*.log"))
	return logs
}

// damaged submits jobs, damages the data while some have ended and some run, and judges what is left. Whatever was lost
// must have been announced, and is not missed then.
func (s *storm) damaged(d damage) {
	submit := func(from, to int) {
		for n := from; n < to; n++ {
			for f := s.fact(n); !s.stored(f) && s.ctx.Err() == nil; {
				s.pause(100 * time.Millisecond)
			}
		}
	}
	submit(0, 9)
	s.await("jobs that have ended, and some that run", func(jobs map[train.JobID]train.Job) bool {
		ended, running := 0, 0
		for _, j := range jobs {
			if j.State.Terminal() {
				ended++
			} else if j.EpochsDone > 0 {
				running++
			}
		}
		return ended >= 3 && running >= 1
	})
	sizes := map[string]int{}
	for _, path := range s.logs() {
		if i, err := os.Stat(path); err == nil {
			sizes[path] = int(i.Size())
		}
	}
	s.note(chaos.Entry{Event: chaos.Fault, Text: d.name})
	if !d.live {
		s.kill("bus", syscall.SIGTERM)
	}
	if err := d.do(s); err != nil {
		s.t.Fatal(err)
	}
	if !d.live {
		s.start("bus")
	}
	said, unready := "", map[string]string{}
	for began := time.Now(); said == "" && time.Since(began) < 45*time.Second && s.ctx.Err() == nil; s.pause(500 * time.Millisecond) {
		said = s.said(sizes)
		unready = s.unready()
	}
	s.say("%s: said %q; not ready %v", d.name, said, unready)
	if said == "" {
		s.t.Errorf("%s: no log says so", d.name)
	}
	if said != "" && d.loses {
		s.note(chaos.Entry{Event: chaos.Announced, Text: said})
	}
	s.restartEnded()
	submit(9, 15)
	s.report(s.settle(90 * time.Second))
}

// damageTests damages data in each way that the table has, on a cluster of its own.
func damageTests(t *testing.T) {
	for _, d := range damages() {
		t.Run(d.name, func(t *testing.T) {
			s := newStorm(t, seed(t), 8*time.Minute)
			s.startAll("bus")
			s.damaged(d)
		})
	}
}
