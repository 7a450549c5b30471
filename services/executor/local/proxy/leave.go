package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// kernel reads the processes of this machine.
const kernel = proc.Root("/proc")

const (
	defaultLook = time.Second
	// mostLooks is the largest number of looks between two searches for a process that catches SIGUSR1: a program that
	// never will should cost nothing.
	mostLooks = 32
	// afterSave is how many looks a program may go on after it got SIGUSR1 and has saved: some only save.
	afterSave = 30
	// justSaved is how many looks old a checkpoint may be for a program that catches nothing to end at once: another one
	// would come a whole epoch later.
	justSaved = 10
)

// leaving is how far a program is with being asked to leave.
type leaving struct {
	// catches is set once a process was found that catches SIGUSR1. Until then pause is the number of looks between two
	// searches, and next the look of the next one.
	catches     bool
	looks       int
	pause, next int
	// asked is set once the job API has answered with a stop, signalled if SIGUSR1 was sent for it. saved is the look at
	// which a checkpoint followed, 0 until then.
	asked, signalled bool
	saved            int
	// found is the look at which the newest checkpoint of this attempt was found, 0 without any.
	found int
}

// Watch begins to look at the running programs.
func (p *Proxy) Watch() {
	if p == nil || len(p.Checkpoints)+len(p.Tables)+len(p.Boards) == 0 && p.Pattern == "" {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	look := defaultLook
	if p.LookMillis > 0 {
		look = time.Duration(p.LookMillis) * time.Millisecond
	}
	p.watching.Go(func() {
		again := time.NewTicker(look)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
				p.look(ctx)
			}
		}
	})
}

// look reports a new checkpoint, asks whether the programs have to leave, and lets them.
func (p *Proxy) look(ctx context.Context) {
	l := &p.leave
	l.looks++
	saved, fresh := p.files.look()
	if fresh {
		p.addCheckpoint(saved)
		l.found = l.looks
	}
	p.reader.files(p.addProgress)
	if r, ok := p.reader.now(); ok && p.waiting() < mostWaiting {
		p.addProgress(r)
	}
	switch {
	case !p.Signals:
	case !l.asked:
		p.ask(ctx)
	case fresh && l.saved == 0:
		l.saved = l.looks
	}
	if l.saved > 0 && (!l.signalled || l.looks-l.saved >= afterSave) {
		select {
		case p.end <- struct{}{}:
		default: // it was said before
		}
	}
}

// ask asks whether the programs have to leave, and passes it on. A program that catches nothing has saved what it can
// if it has saved just now.
func (p *Proxy) ask(ctx context.Context) {
	l := &p.leave
	signal := p.signal()
	if signal == "" || !p.mustStop(ctx, signal) {
		return
	}
	l.asked = true
	p.send()
	if recent := l.found > 0 && l.looks-l.found < justSaved; recent && !l.signalled {
		l.saved = l.looks
	}
}

// signal returns the signal by which the programs can be asked to leave; "" if there is none.
func (p *Proxy) signal() string {
	l := &p.leave
	if !l.catches && l.looks >= l.next {
		l.catches = len(catching(os.Getpid())) > 0
		l.pause = min(max(2*l.pause, 1), mostLooks)
		l.next = l.looks + l.pause
	}
	switch {
	case l.catches:
		return train.SignalSave
	case p.EndsBySignal:
		return train.SignalEnd
	}
	return ""
}

// mustStop asks the job API. Without an answer, the next look asks again.
func (p *Proxy) mustStop(ctx context.Context, signal string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Address+"control?signal="+signal, http.NoBody)
	if err != nil {
		return false
	}
	answer, err := p.client.Do(request)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	var said struct {
		Stop bool `json:"stop"`
	}
	err = json.NewDecoder(answer.Body).Decode(&said)
	return err == nil && answer.StatusCode == http.StatusOK && said.Stop
}

// send sends SIGUSR1 to the processes that catch it. It would kill all others.
func (p *Proxy) send() {
	var got []string
	for _, s := range catching(os.Getpid()) {
		if kernel.Signal(s.PID, s.Start, unix.SIGUSR1) == nil {
			got = append(got, fmt.Sprintf("%d (%s)", s.PID, s.Name))
		}
	}
	p.leave.signalled = len(got) > 0
	words := "it ends after a checkpoint: no process catches SIGUSR1"
	if p.leave.signalled {
		words = "SIGUSR1 sent to " + strings.Join(got, ", ")
	}
	_, _ = fmt.Fprintf(p.log, "[switchyard: asked to leave: %s]\n", words)
}

// catching returns the descendants of a process that catch SIGUSR1. It leaves out forks of such a process that run the
// same command, such as loaders of data: they inherited a handler that is not meant for them.
func catching(of int) []proc.Stat {
	all, err := kernel.Living()
	if err != nil {
		return nil
	}
	var found []proc.Stat
	tree := proc.NewForest(all).Tree(of, all[of].Start)
	for pid, s := range tree {
		if pid == of || !kernel.Catches(pid, int(unix.SIGUSR1)) {
			continue
		}
		inherited := s.Parent != of && kernel.Catches(s.Parent, int(unix.SIGUSR1)) && bytes.Equal(kernel.Command(pid), kernel.Command(s.Parent))
		if !inherited {
			found = append(found, s)
		}
	}
	return found
}
