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
	// silent says that nothing is lost, so that no log has to report it.
	silent bool
	// loses says that facts may be gone, if that is announced, and most how many at most. A bucket is made again from
	// what is left.
	loses bool
	most  int
	do    func(s *storm) error
}

func damages() []damage {
	var rows []damage
	for _, bucket := range []string{"jobs", "attempts"} {
		rows = append(rows,
			damage{name: "bucket " + bucket + " removed", do: func(s *storm) error { return os.RemoveAll(s.stream("KV_" + bucket)) }},
			damage{name: "bucket " + bucket + " deleted live", live: true, do: func(s *storm) error { return s.js.DeleteStream(s.ctx, "KV_"+bucket) }},
			damage{name: "64 bytes of bucket " + bucket + " flipped", loses: true, do: spoilt("KV_"+bucket, flip)},
		)
	}
	return append(rows,
		damage{name: "index of JOBS removed", silent: true, do: spoilt("JOBS", func(data []byte) []byte { return data })},
		damage{name: "64 bytes of JOBS flipped", loses: true, most: 2, do: spoilt("JOBS", flip)},
		damage{name: "tail of JOBS cut", loses: true, most: 1, do: spoilt("JOBS", func(data []byte) []byte { return data[:len(data)-100] })},
		damage{name: "garbage behind JOBS", silent: true, do: spoilt("JOBS", func(data []byte) []byte { return append(data, bytes.Repeat([]byte{0xa5}, 64)...) })},
	)
}

// flip inverts 64 bytes in the middle.
func flip(data []byte) []byte {
	for i := range data[len(data)/2:][:64] {
		data[len(data)/2+i] ^= 0xff
	}
	return data
}

// spoilt changes the newest block of a stream, and removes its index: the bus then reads it from its blocks.
func spoilt(stream string, change func(data []byte) []byte) func(s *storm) error {
	return func(s *storm) error {
		folder := filepath.Join(s.stream(stream), "msgs")
		blocks, err := filepath.Glob(filepath.Join(folder, "*.blk"))
		if err != nil || len(blocks) == 0 {
			return fmt.Errorf("%w: the stream has no blocks", errors.Join(err, errNothingToHit))
		}
		newest := blocks[len(blocks)-1]
		data, err := os.ReadFile(newest)
		if err != nil {
			return err
		}
		return errors.Join(os.RemoveAll(filepath.Join(folder, "index.db")), os.WriteFile(newest, change(data), 0o600))
	}
}

// stream returns the folder of a stream.
func (s *storm) stream(name string) string {
	return filepath.Join(s.data, "bus", "jetstream", identity.Account, "streams", name)
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
	s.told(d, sizes)
	s.restartEnded()
	submit(9, 15)
	found := s.settle(90 * time.Second)
	w := s.world()
	lost := int(w.Last-w.First) + 1 - len(w.Facts)
	s.say("%s: %d facts of jobs are lost", d.name, lost)
	if lost > d.most {
		s.t.Errorf("%s: %d facts of jobs are lost, want at most %d", d.name, lost, d.most)
	}
	s.report(found)
}

// told waits until a log reports the damage, and does what it says if something is lost for good.
func (s *storm) told(d damage, sizes map[string]int) {
	patience := 45 * time.Second
	if d.silent {
		patience = 5 * time.Second
	}
	said, unready := "", map[string]string{}
	for began := time.Now(); said == "" && time.Since(began) < patience && s.ctx.Err() == nil; s.pause(500 * time.Millisecond) {
		said = s.said(sizes)
		unready = s.unready()
	}
	s.say("%s: said %q; not ready %v", d.name, said, unready)
	if said == "" && !d.silent {
		s.t.Errorf("%s: no log says so", d.name)
	}
	if said == "" || !d.loses {
		return
	}
	s.note(chaos.Entry{Event: chaos.Announced, Text: said})
	if d.most > 0 && !s.watch(metric{name: "switchyard_bus_losses"}).shown() {
		s.t.Errorf("%s: switchyard_bus_losses does not show it", d.name)
	}
	code, out := s.command("repair", "--data-dir", s.data)
	s.say("switchyard repair: exit code %d\n%s", code, out)
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
