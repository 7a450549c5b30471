package local

import (
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/joblog"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

func TestJobThatFloodsItsLog(t *testing.T) {
	b := newBench(t)
	l := b.launch("j", sh("echo first; head -c 5000000 /dev/zero | tr '\\0' x | fold -w 100; echo last >&2"))
	l.LimitBytes = joblog.MinLimit
	b.start(l)
	if got := b.phase("j", launch.Exited).Exit; got != (train.Exit{}) {
		t.Fatalf("exit %+v", got)
	}
	log := b.log("j")
	if !strings.HasPrefix(log, "[header]\nfirst\nxxx") || !strings.HasSuffix(log, "last\n") || len(log) > joblog.MinLimit {
		t.Errorf("log of %d bytes begins %.30q and ends %q", len(log), log, log[len(log)-30:])
	}
}

func TestRanksAreDistinguished(t *testing.T) {
	b := newBench(t)
	b.start(b.launch("j", sh("echo zero; touch done"), sh("while ! [ -e done ]; do sleep 0.01; done; echo one; exit 2")))
	if got := b.phase("j", launch.Exited).Exit; got.Code != 2 {
		t.Errorf("exit %+v", got)
	}
	for _, line := range []string{"[0] zero\n", "[1] one\n"} {
		if !strings.Contains(b.log("j"), line) {
			t.Errorf("log %q lacks %q", b.log("j"), line)
		}
	}
}
