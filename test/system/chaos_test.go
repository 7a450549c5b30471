package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sourcegraph/conc"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/test/chaos"
)

// replicated returns the services of which a storm runs two processes.
func replicated() []string { return []string{"admission", "profiler", "planner", "energy"} }

// storm is a cluster of separate processes under a load of jobs, into which faults are injected one after the other.
type storm struct {
	*cluster
	seed   uint64
	random *rand.Rand
	// ended counts the parts that ended by themselves.
	ended int
	// rows are the names of the faults to draw. For each fault, back has the times until all was ready again, undone why
	// it could not happen, unseen how often its metric did not show it.
	rows   []string
	back   map[string][]time.Duration
	undone map[string]string
	unseen map[string]int
	// impossible are the faults that this machine cannot have.
	impossible map[string]bool
	mu         sync.Mutex
	js         jetstream.JetStream
	// noDisk says why its disk cannot be filled. group holds the bus to little memory while it is limited.
	noDisk  string
	group   string
	limited bool
	// buses are the servers of a cluster.
	buses []string
}

// newStorm starts a bus and every service, four of them twice. Its ledger is not in the data folder: what harms that
// folder leaves the evidence alone.
func newStorm(t *testing.T, seed uint64, d time.Duration) *storm {
	t.Helper()
	dir, noDisk := disk(t)
	s := &storm{
		cluster: newClusterIn(t, dir, d), noDisk: noDisk, seed: seed, random: rand.New(rand.NewPCG(seed, 0)), back: map[string][]time.Duration{}, undone: map[string]string{},
		unseen: map[string]int{}, impossible: map[string]bool{},
	}
	s.ledger = filepath.Join(t.TempDir(), "ledger.jsonl")
	s.http, s.servers = map[string]int{}, map[string]string{}
	s.flags = []string{"--cpu-slots", "4"}
	return s
}

// startAll starts the parts and waits until they are ready.
func (s *storm) startAll(buses ...string) {
	for _, name := range buses {
		s.start(name)
	}
	s.connect()
	s.js = s.jetStream()
	for _, service := range serviceNames() {
		names := []string{service}
		if slices.Contains(replicated(), service) {
			names = []string{service + "@a", service + "@b"}
		}
		for _, name := range names {
			s.http[name] = bustest.FreePort(s.t)
			s.start(name)
		}
	}
	s.ready("the start")
}

func (s *storm) say(format string, args ...any) {
	fmt.Fprintf(s.t.Output(), format+"\n", args...)
}

func (s *storm) note(e chaos.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := chaos.Append(s.ledger, e); err != nil {
		s.t.Error(err)
	}
}

// pause waits.
func (s *storm) pause(d time.Duration) {
	select {
	case <-s.ctx.Done():
	case <-time.After(d):
	}
}

// between draws a time.
func (s *storm) between(low, high time.Duration) time.Duration {
	return low + time.Duration(s.random.Int64N(int64(high-low)+1))
}

// unready asks every part whether it is ready.
func (s *storm) unready() map[string]string {
	faults := map[string]string{}
	client := http.Client{Timeout: 2 * time.Second}
	for name, port := range s.http {
		r, err := client.Get("http://127.0.0.1:" + strconv.Itoa(port) + "/readyz") //nolint:noctx // it has a timeout
		if err != nil {
			faults[name] = err.Error()
			continue
		}
		body, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			faults[name] = strings.TrimSpace(string(body))
		}
	}
	return faults
}

// ready waits for a minute until all parts are ready, and notes how long that took.
func (s *storm) ready(after string) {
	began := time.Now()
	faults := s.unready()
	for ; len(faults) > 0 && time.Since(began) < time.Minute && s.ctx.Err() == nil; faults = s.unready() {
		s.restartEnded()
		s.pause(50 * time.Millisecond)
	}
	if len(faults) > 0 {
		s.say("a minute after %s: not ready: %v", after, faults)
	}
	s.back[after] = append(s.back[after], time.Since(began))
}

// restartEnded does what a service manager does: a part that has ended by itself is started again.
func (s *storm) restartEnded() {
	for name, cmd := range s.procs {
		if hasEnded(cmd.Process.Pid) {
			s.ended++
			_ = cmd.Wait()
			s.say("%s ended by itself: %s: %s", name, cmd.ProcessState, s.lastLine(name))
			if s.http[name] != 0 {
				s.http[name] = bustest.FreePort(s.t) // another program may have taken the old one meanwhile
			}
			s.startPart(name)
		}
	}
}

// hasEnded says whether a child process has ended and waits to be collected. The state Z in /proc does not say that: a
// process that becomes another program from a thread that is not its first one is a zombie for a moment.
func hasEnded(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0
}

// lastLine returns the last line of the log of a part.
func (s *storm) lastLine(name string) string {
	data, _ := os.ReadFile(filepath.Join(s.dir, name+".log"))
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return lines[len(lines)-1]
}

// submitter publishes jobs until ctx ends, and for a minute more those that the bus has not acknowledged.
func (s *storm) submitter(ctx context.Context, random *rand.Rand, interval time.Duration) {
	var waiting []event.Fact
	unstored := map[string]bool{}
	var end time.Time
	for n := 0; s.ctx.Err() == nil && (ctx.Err() == nil || len(waiting) > 0 && time.Since(end) < time.Minute); n++ {
		if ctx.Err() == nil {
			end = time.Now()
			waiting = append(waiting, s.fact(n))
			unstored[waiting[len(waiting)-1].Subject.ID] = true
			if late := s.kind(n - 3); late.name == "cancelled" { // it runs by now, or waits
				waiting = append(waiting, event.OnceFact(late.id(n-3), event.FactCancelRequested, "cancel/0", event.CancelRequested{By: "chaos"}))
			}
		}
		waiting = slices.DeleteFunc(waiting, func(f event.Fact) bool {
			if f.Subject.Fact == event.FactCancelRequested && unstored[f.Subject.ID] || !s.stored(f) {
				return false
			}
			delete(unstored, f.Subject.ID)
			return true
		})
		s.pause(interval/2 + time.Duration(random.Int64N(int64(interval))))
	}
}

// fact is the submission of the n-th job, which is noted in the ledger.
func (s *storm) fact(n int) event.Fact {
	k := s.kind(n)
	spec := k.spec
	spec.Name, spec.WorkDir, spec.Env = string(k.id(n)), s.dir, map[string]string{"TRAIN_LEDGER": s.ledger}
	s.note(chaos.Entry{Event: chaos.Submitted, Job: spec.Name, Epochs: spec.MaxEpochs, Ends: k.ends})
	return event.OnceFact(k.id(n), event.FactSubmitted, "submitted", event.Submitted{Spec: spec})
}

// kind is the kind of the n-th job.
func (s *storm) kind(n int) kind {
	if n < 0 {
		return kind{}
	}
	all := s.kinds()
	return all[n%len(all)]
}

func (k kind) id(n int) train.JobID { return train.JobID(fmt.Sprintf("%s-%d", k.name, n)) }

// stored publishes a fact once, and reports whether the bus says that it has it.
func (s *storm) stored(f event.Fact) bool {
	sequence, err := s.bus.PublishAfter(s.ctx, f, 0)
	if errors.Is(err, bus.ErrConflict) { // an earlier try was stored, but its answer was lost
		var m bus.Message
		m, err = s.bus.Last(s.ctx, event.StreamJobs, f.Subject)
		sequence = m.Sequence
	}
	if err == nil && f.Subject.Fact == event.FactSubmitted {
		s.note(chaos.Entry{Event: chaos.Acked, Job: f.Subject.ID, Sequence: sequence})
	}
	return err == nil
}

// kind is a kind of job, with the states in which it may end.
type kind struct {
	name string
	spec train.Spec
	ends []train.State
}

// kinds returns trainers that are short, fail, are long, grow to two devices, and compute for real.
func (s *storm) kinds() []kind {
	trainer := filepath.Join(binaries, "gotrainer")
	shell := func(code int) []string {
		return []string{"sh", "-c", fmt.Sprintf(`say() {
printf '{"event":"%%s","job":"%%s","attempt":%%d,"pid":%%d,"devices":"%%s","unix_seconds":%%s}\n' $1 $SWITCHYARD_JOB $SWITCHYARD_ATTEMPT $$ $SWITCHYARD_DEVICES $(date +%%s.%%N) >>"$TRAIN_LEDGER"
}
trap 'say exit; exit 143' TERM; say start; sleep 0.2 & wait; say exit; exit %d`, code)}
	}
	paced := func(epochs, devices int) train.Spec {
		return train.Spec{Command: []string{trainer, "-hidden", "8", "-slow-by", "1ms"}, BatchSize: 32, TrainingSetSize: 6000, MaxEpochs: epochs, MaxDevices: devices}
	}
	succeeded := []train.State{train.StateSucceeded}
	return []kind{
		{"long", paced(30, 1), succeeded},
		{"short", train.Spec{Command: shell(0)}, succeeded},
		{"wide", paced(12, 2), succeeded},
		{"failing", train.Spec{Command: shell(3)}, []train.State{train.StateFailed}},
		{"real", train.Spec{Command: []string{trainer, "-hidden", "48"}, BatchSize: 64, TrainingSetSize: 4000, MaxEpochs: 6, MaxDevices: 1}, succeeded},
		{"cancelled", paced(10, 1), []train.State{train.StateCancelled, train.StateSucceeded}},
	}
}

// leader returns the replica that holds a service's lease, or any live one if the bus does not say.
func (s *storm) leader(service string) string {
	if stream, is := strings.CutPrefix(service, "leader of "); is {
		return s.streamLeader(stream)
	}
	if service == "bus" && len(s.buses) > 0 {
		return s.buses[s.random.IntN(len(s.buses))]
	}
	if !slices.Contains(replicated(), service) {
		return service
	}
	name := service + []string{"@a", "@b"}[s.random.IntN(2)]
	ctx, cancel := context.WithTimeout(s.ctx, 2*time.Second) // the fault may have killed the bus before
	defer cancel()
	kv, err := bus.OpenKV(ctx, s.bus, contract.Leases)
	if err != nil {
		return name
	}
	if e, err := kv.Get(ctx, service); err == nil {
		_, dir, _ := strings.Cut(e.Value.Holder, ":")
		if held := service + "@" + filepath.Base(dir); s.procs[held] != nil {
			return held
		}
	}
	return name
}

// inject injects a fault, heals it after a while, and waits until all parts are ready again.
func (s *storm) inject(f fault) {
	if f.cannot != nil {
		if why := f.cannot(s); why != "" {
			s.undone[f.name], s.impossible[f.name] = why, true
			return
		}
	}
	s.restartEnded()
	hold := s.between(f.hold[0], f.hold[1])
	s.note(chaos.Entry{Event: chaos.Fault, Text: f.name})
	watching := s.watch(f.metric)
	heal, err := f.inject(s)
	if err != nil {
		s.undone[f.name] = err.Error()
		s.say("%s: not done: %v", f.name, err)
	}
	watching.hold(hold)
	if heal != nil {
		heal()
	}
	s.note(chaos.Entry{Event: chaos.Healed, Text: f.name})
	if err == nil {
		s.ready(f.name)
		if !watching.shown() {
			s.unseen[f.name]++
			s.say("%s: %s does not show it", f.name, f.metric.name)
		}
		s.say("%-28s held %5.1fs, ready again after %.1fs", f.name, hold.Seconds(), s.back[f.name][len(s.back[f.name])-1].Seconds())
	}
}

// settle waits until nothing is left to do, and judges. A run that does not settle is judged after its patience.
func (s *storm) settle(patience time.Duration) []chaos.Violation {
	began := time.Now()
	for {
		s.restartEnded()
		found := chaos.Judge(readLedger(s.t, s.ledger), s.world())
		if len(found) == 0 || time.Since(began) > patience || s.ctx.Err() != nil {
			s.say("settled after %.0f s", time.Since(began).Seconds())
			return found
		}
		s.pause(time.Second)
	}
}

// report prints the faults, the jobs and the verdict.
func (s *storm) report(found []chaos.Violation) {
	var faults, jobs, attempts, killed int
	for _, e := range readLedger(s.t, s.ledger) {
		switch e.Event {
		case chaos.Fault:
			faults++
		case chaos.Submitted:
			jobs++
		case chaos.Start:
			attempts++
		case chaos.Killed:
			killed++
		}
	}
	s.say("\nseed %d: %d faults, %d jobs, %d attempts, %d of them killed, %d parts ended by themselves", s.seed, faults, jobs, attempts, killed, s.ended)
	s.reportRows()
	verdict := chaos.Verdict(found)
	s.say("%s", verdict)
	if len(found) > 0 {
		s.t.Errorf("seed %d:\n%s", s.seed, verdict)
	}
}

// reportRows prints each row of the table with how often it was done. A run in which every row was drawn is broken if
// one of them never happened although this machine can have it.
func (s *storm) reportRows() {
	s.say("%-28s %5s %12s %9s", "fault", "times", "ready p50 s", "max s")
	var never, notDrawn []string
	for _, name := range s.rows {
		d := slices.Sorted(slices.Values(s.back[name]))
		why, failed := s.undone[name]
		switch {
		case len(d) > 0:
			s.say("%-28s %5d %12.1f %9.1f", name, len(d), d[len(d)/2].Seconds(), d[len(d)-1].Seconds())
		case failed:
			s.say("%-28s %5d NOT DONE: %s", name, 0, why)
			never = append(never, name)
		default:
			s.say("%-28s %5d NOT DRAWN", name, 0)
			notDrawn = append(notDrawn, name)
		}
	}
	word := "all rows were done"
	if left := len(never) + len(notDrawn); left > 0 {
		word = fmt.Sprintf("INCOMPLETE: %d of %d rows were done; %d could not be, the run was too short for %d", len(s.rows)-left, len(s.rows), len(never), len(notDrawn))
	}
	s.say("%s\n", word)
	for _, name := range never {
		if len(notDrawn) == 0 && !s.impossible[name] {
			s.t.Errorf("%s was drawn and never happened: %s", name, s.undone[name])
		}
	}
	for name, times := range s.unseen {
		s.t.Errorf("%s: its metric did not show it %d times", name, times)
	}
}

// storms injects faults while jobs come in, and judges what is left.
func (s *storm) storms(interval, calm, length time.Duration, rows []fault) {
	random := rand.New(rand.NewPCG(s.seed, 1))
	load, enough := context.WithCancel(s.ctx)
	var submitting conc.WaitGroup
	submitting.Go(func() { s.submitter(load, random, interval) })
	for f := range s.draws(length, rows) {
		s.inject(f)
		s.pause(s.between(0, calm))
	}
	enough()
	submitting.Wait()
	s.report(s.settle(90 * time.Second))
}

// draws yields rows for a time, each once before any comes again; without a time, each once.
func (s *storm) draws(length time.Duration, rows []fault) func(yield func(fault) bool) {
	return func(yield func(fault) bool) {
		for end, again := time.Now().Add(length), true; again; again = length > 0 {
			deck := s.deck(rows)
			for _, f := range deck {
				if !slices.Contains(s.rows, f.name) {
					s.rows = append(s.rows, f.name)
				}
			}
			slices.Sort(s.rows)
			for _, f := range deck {
				if s.ctx.Err() != nil || length > 0 && time.Now().After(end) || !yield(f) {
					return
				}
			}
		}
	}
}

// TestChaosInShort kills and stops every part once, singly and in pairs.
func TestChaosInShort(t *testing.T) {
	t.Parallel()
	s := newStorm(t, 1, 8*time.Minute)
	s.startAll("bus")
	s.storms(1200*time.Millisecond, 300*time.Millisecond, 0, short())
}

func seed(t *testing.T) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	if err != nil {
		n = uint64(time.Now().UnixNano()) % 1_000_000
	}
	return n
}

// TestChaos injects every fault that this machine can have for CHAOS minutes.
func TestChaos(t *testing.T) {
	minutes, err := strconv.ParseFloat(os.Getenv("CHAOS"), 64)
	if err != nil {
		t.Skip("CHAOS has no number of minutes: `make chaos`")
	}
	length := time.Duration(minutes * float64(time.Minute))
	wanted := regexp.MustCompile(os.Getenv("ROWS"))
	chosen := func(rows []fault) []fault {
		return slices.DeleteFunc(rows, func(f fault) bool { return !wanted.MatchString(f.name) })
	}
	t.Run("one bus", func(t *testing.T) {
		s := newStorm(t, seed(t), length+15*time.Minute)
		s.startAll("bus")
		s.storms(1500*time.Millisecond, 2*time.Second, length, chosen(long(min(3*time.Minute, length/3))))
	})
	t.Run("three buses", func(t *testing.T) {
		s := newStorm(t, seed(t), length+15*time.Minute)
		s.threeBuses()
		s.storms(1500*time.Millisecond, 2*time.Second, length/2, chosen(replicatedBus()))
	})
	t.Run("damage", damageTests)
}

// alive reports whether a process lives.
func alive(pid int) bool {
	_, state := parentOf(pid)
	return state != "" && state != "Z" && syscall.Kill(pid, 0) == nil
}
