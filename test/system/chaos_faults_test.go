package system

import (
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/switchyard-dl/switchyard/test/chaos"
)

// fault is one row of the table of faults.
type fault struct {
	name string
	// metric is what an operator's alert watches, and shows the fault if it is not empty.
	metric metric
	// hold bounds the time until the fault is healed.
	hold [2]time.Duration
	// cannot says why this machine cannot have the fault; empty if it can.
	cannot func(s *storm) string
	// inject returns what heals the fault; nil if nothing has to.
	inject func(s *storm) (heal func(), err error)
}

var errNothingToHit = errors.New("nothing to hit")

func second(low, high float64) [2]time.Duration {
	return [2]time.Duration{time.Duration(low * float64(time.Second)), time.Duration(high * float64(time.Second))}
}

// parts are all that can be killed: processes by name, the leader of a replicated service, and a job's processes.
func parts() []string { return append([]string{"bus", "supervisor", "trainer"}, serviceNames()...) }

// kill kills parts at once and starts them again.
func kill(hold [2]time.Duration, parts ...string) fault {
	return strike("kill -9", syscall.SIGKILL, hold, parts...)
}

func strike(word string, with syscall.Signal, hold [2]time.Duration, parts ...string) fault {
	name := word
	for _, part := range parts {
		name += " " + part
	}
	if len(parts) > 2 {
		name = word + " everything"
	}
	return fault{name: name, hold: hold, inject: func(s *storm) (func(), error) {
		var heals []func()
		var errs []error
		for _, part := range parts {
			heal, err := s.hit(part, with)
			errs = append(errs, err)
			if heal != nil {
				heals = append(heals, heal)
			}
		}
		return func() {
			for _, heal := range heals {
				heal()
			}
		}, errors.Join(errs...)
	}}
}

// hit sends a signal to a part.
func (s *storm) hit(part string, with syscall.Signal) (heal func(), err error) {
	if part == "trainer" || part == "supervisor" {
		return s.hitJob(part, with)
	}
	name := s.leader(part)
	cmd := s.procs[name]
	if cmd == nil {
		return nil, errNothingToHit
	}
	if err := cmd.Process.Signal(with); err != nil {
		return nil, err
	}
	if with == syscall.SIGSTOP {
		return func() { _ = cmd.Process.Signal(syscall.SIGCONT) }, nil
	}
	return func() {
		for began := time.Now(); alive(cmd.Process.Pid); s.pause(10 * time.Millisecond) {
			if time.Since(began) > 30*time.Second {
				s.t.Errorf("%s does not stop within 30 s of %s", name, with)
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait()
		s.startPart(name)
	}, nil
}

// hitJob sends a signal to a trainer, or to its supervisor. What dies of it is noted in the ledger.
func (s *storm) hitJob(part string, with syscall.Signal) (heal func(), err error) {
	trainer, found := s.aTrainer()
	for began := time.Now(); !found && time.Since(began) < 20*time.Second; trainer, found = s.aTrainer() {
		s.pause(100 * time.Millisecond)
	}
	if !found {
		return nil, errNothingToHit
	}
	pid := trainer.PID
	if part == "supervisor" {
		pid, _ = parentOf(pid)
	}
	began := float64(time.Now().UnixMicro()) / 1e6
	if with == syscall.SIGSTOP {
		return func() {
			if part == "trainer" && !alive(pid) {
				// Its job was cancelled while it was stopped. Its supervisor killed it, so it wrote no exit.
				trainer.Event, trainer.Seconds = chaos.Killed, began
				s.note(trainer)
			}
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}, syscall.Kill(pid, with)
	}
	if err := syscall.Kill(pid, with); err != nil {
		return nil, errNothingToHit // it has just ended
	}
	for alive(trainer.PID) && s.ctx.Err() == nil {
		s.pause(5 * time.Millisecond)
	}
	exited := slices.ContainsFunc(readLedger(s.t, s.ledger), func(e chaos.Entry) bool {
		return e.Event == chaos.Exit && e.Job == trainer.Job && e.Attempt == trainer.Attempt && e.PID == trainer.PID
	})
	trainer.Event, trainer.Seconds = chaos.Killed, began
	if exited && with == syscall.SIGTERM {
		trainer.Event = chaos.Terminated
	}
	if !exited || with == syscall.SIGTERM {
		s.note(trainer)
	}
	return nil, nil
}

// aTrainer draws one of the processes that train.
func (s *storm) aTrainer() (chaos.Entry, bool) {
	running := map[int]chaos.Entry{}
	for _, e := range readLedger(s.t, s.ledger) {
		switch e.Event {
		case chaos.Start:
			running[e.PID] = e
		case chaos.Exit, chaos.Killed:
			delete(running, e.PID)
		}
	}
	living := s.trainers()
	slices.Sort(living)
	living = slices.DeleteFunc(living, func(pid int) bool { return running[pid].Job == "" })
	if len(living) == 0 {
		return chaos.Entry{}, false
	}
	return running[living[s.random.IntN(len(living))]], true
}

// everything is the name for all services and the bus at once.
func everything() []string { return append(serviceNames(), "bus") }

// short returns the rows of the short form: each part is killed, those that hold a lease or a connection are stopped.
func short() []fault {
	rows := kills()
	for _, part := range []string{"bus", "planner", "executor", "nodeagent", "trainer"} {
		rows = append(rows, strike("stop", syscall.SIGSTOP, second(1, 2), part))
	}
	return append(rows, strike("term", syscall.SIGTERM, second(0, 0), "trainer"))
}

// kills returns the rows that kill each part, singly and with others.
func kills() []fault {
	var rows []fault
	for _, part := range parts() {
		rows = append(rows, kill(second(0, 0.5), part))
	}
	rows[0].metric = metric{name: "switchyard_bus_reconnects_total", counts: true} // that of the bus
	return append(rows,
		kill(second(0, 0.5), everything()...),
		strike("term", syscall.SIGTERM, second(0, 0.5), everything()...),
		kill(second(0, 0.5), "bus", "executor"), kill(second(0, 0.5), "supervisor", "nodeagent"),
	)
}

// long returns the rows of a round of the long form, in which the bus is away once for a time.
func long(away time.Duration) []fault {
	rows := kills()
	for _, part := range append(serviceNames(), "bus", "trainer") {
		rows = append(rows, strike("stop", syscall.SIGSTOP, second(5, 12), part), strike("term", syscall.SIGTERM, second(0, 3), part))
	}
	gone := kill([2]time.Duration{away, away}, "bus")
	gone.name = "bus away"
	full := metric{name: "switchyard_disk_scarce"}
	return append(rows, gone,
		fault{name: chaos.ClockSet, hold: second(8, 15), cannot: noClock, inject: clocksBack(time.Hour)},
		fault{name: chaos.DiskFull, metric: full, hold: second(10, 20), cannot: func(s *storm) string { return s.noDisk }, inject: fill},
		fault{name: "little memory for the bus", hold: second(10, 20), cannot: noMemoryGroup, inject: starve},
	)
}

// replicatedBus returns the rows for a bus of three servers: those that lead are killed, stopped and terminated.
func replicatedBus() []fault {
	var rows []fault
	for _, stream := range []string{"JOBS", "PLANS", "KV_jobs", "KV_attempts", "KV_leases"} {
		part := "leader of " + stream
		rows = append(rows, kill(second(0, 8), part), strike("stop", syscall.SIGSTOP, second(2, 12), part), strike("term", syscall.SIGTERM, second(0, 5), part))
	}
	return append(rows, kill(second(0, 2), "leader of JOBS", "planner"), kill(second(0, 2), "leader of KV_jobs", "admission"), kill(second(0, 2), "leader of KV_attempts", "executor"))
}

// deck shuffles rows, and adds pairs of parts that are killed at once.
func (s *storm) deck(rows []fault) []fault {
	for range len(rows) / 8 {
		all := parts()
		s.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		pair := kill(second(0, 1), all[0], all[1])
		pair.name = pairs
		rows = append(rows, pair)
	}
	s.random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	return rows
}

// pairs is the row of the pairs that are drawn.
const pairs = "kill -9 two parts"
