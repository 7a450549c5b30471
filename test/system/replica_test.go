package system

import (
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestAReplicaThatIsBehindAnswersNoRead stops one server of three while a record is written, and reads the record
// while that server takes in what it missed.
func TestAReplicaThatIsBehindAnswersNoRead(t *testing.T) {
	t.Parallel()
	s := &storm{cluster: newClusterIn(t, t.TempDir(), 2*time.Minute), random: rand.New(rand.NewPCG(1, 0))}
	s.servers = map[string]string{}
	s.threeServers()
	for _, name := range s.buses {
		s.start(name)
	}
	s.connect()
	s.js = s.jetStream()
	reports, err := bus.OpenKV(s.ctx, s.bus, contract.Reports)
	if err != nil {
		t.Fatal(err)
	}
	own, key := reports.Own(), contract.ReportKey("a", 1)
	var revision uint64
	old, reads, lost := 0, 0, 0
	for range 3 {
		follower := s.procs[s.follower("KV_"+string(contract.Reports))].Process
		_ = follower.Signal(syscall.SIGSTOP)
		for n := range 300 {
			report := train.AttemptReport{Job: "a", Attempt: 1, EpochsDone: n + 1}
			s.eventually("write a report", func() (err error) {
				e, err := own.Modify(s.ctx, key, func(known *train.AttemptReport) (bool, error) { *known = report; return true, nil })
				revision = e.Revision
				return err
			})
		}
		_ = follower.Signal(syscall.SIGCONT)
		for end := time.Now().Add(time.Second); time.Now().Before(end); {
			e, err := reports.Get(s.ctx, key)
			if err != nil {
				lost++
				continue
			}
			reads++
			if e.Revision < revision {
				old++
			}
		}
	}
	t.Logf("%d reads, %d of them old, %d without an answer", reads, old, lost)
	if old > 0 || reads == 0 {
		t.Errorf("%d of %d reads returned an older revision than the newest written one", old, reads)
	}
}

// follower returns a server that does not lead a stream, and that the client is not connected to.
func (s *storm) follower(stream string) string {
	leader := s.streamLeader(stream)
	for i, url := range strings.Split(s.urls, ",") {
		if s.buses[i] != leader && url != s.bus.URL() {
			return s.buses[i]
		}
	}
	return ""
}
