package diff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// world is an executor and its machine as far as the decisions see them. It enforces the rules of the records: what
// it refuses, a bucket changed by compare-and-swap refuses too.
type world struct {
	State
	limits Limits
	began  time.Time
	// step is how far the clock of the records is ahead of the clock that counts time, because an operator has set it.
	step time.Duration
	// log has every attempt that was ever claimed; facts has the ends that the register has not folded yet.
	log   []string
	facts []train.Attempt
}

// machine is a node with three devices of 16 GiB.
func machine(id train.NodeID) train.Node {
	n := train.Node{ID: id}
	for _, d := range []train.DeviceID{"gpu:0", "gpu:1", "gpu:2"} {
		n.Devices = append(n.Devices, train.Device{ID: d, Kind: train.KindGPU, Memory: 16 * unit.GiB})
	}
	return n
}

func newWorld() *world {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return &world{
		State: State{
			Now: began, Realm: Realm{Realm: train.Realm{Machine: "n1"}, Nodes: map[train.NodeID]train.Node{"n1": machine("n1")}}, Jobs: map[train.JobID]train.Job{}, Attempts: map[train.JobID]train.Attempt{},
			Reports: map[ReportKey]train.AttemptReport{}, StopSeen: map[ReportKey]time.Time{}, ExitSeen: map[ReportKey]time.Time{}, Retunes: map[ReportKey]train.Reason{},
			StepsSeen: map[ReportKey]train.Steps{},
		},
		limits: Limits{StopGrace: 10 * time.Minute, MostGrace: 2 * time.Hour}, began: began,
	}
}

// actions returns the actions for all jobs.
func (w *world) actions() []Action {
	w.Held = train.Occupancy{}
	for _, a := range w.Attempts {
		key := ReportKey{a.Job, a.Number}
		if _, seen := w.ExitSeen[key]; !seen && a.Phase == train.PhaseExited {
			w.ExitSeen[key] = w.Now
		}
		if a.Live() && a.Backend == w.Realm.Backend {
			w.Held.Take(a.Places())
		}
	}
	return Actions(w.State, w.limits)
}

func (w *world) accept(p train.Plan) bool {
	if w.Planned && p.Generation < w.Plan.Generation {
		return false
	}
	w.Plan, w.Planned = p, true
	return true
}

// act carries out one action as the executor does; the machine starts what is claimed at once. It returns an error if
// an invariant is broken.
func (w *world) act(a Action) error {
	last, tried := w.Attempts[a.Job]
	switch a.Kind {
	case Start:
		return w.start(a, last, tried)
	case RequestStop:
		return w.requestStop(a, last)
	case WithdrawStop:
		return w.withdrawStop(a, last)
	case Rebatch:
		return w.rebatch(a, last)
	case Kill:
		w.kill(a, last)
	case Decide:
		return w.decide(a, last)
	case Publish:
		return w.publish(a.Job, last)
	case Cancel:
		return w.cancel(a, last)
	}
	return nil
}

func (w *world) start(a Action, last train.Attempt, tried bool) error {
	if err := w.mayStart(a, last, tried); err != nil {
		return err
	}
	next := train.Attempt{
		Job: a.Job, Number: a.Number, Backend: w.Realm.Backend, LogFormat: w.Jobs[a.Job].Spec.LogFormat, Generation: a.Generation, Phase: train.PhaseRunning, StartedAt: w.Now,
		StartedEpochs: a.StartedEpochs, StartedStep: a.StartedStep, CountsCheckpoints: a.CountsCheckpoints, LostInARow: a.LostInARow, Retries: a.Retries, UnstartedInARow: a.UnstartedInARow,
		Resumed: w.Jobs[a.Job].Resumed,
	}
	next.SetPlaces(a.Places)
	w.Attempts[a.Job] = next
	return nil
}

func (w *world) requestStop(a Action, last train.Attempt) error {
	again := last.Stop == train.StopRetune && (a.Cause == train.StopPreempt || a.Cause == train.StopRescale) ||
		makesRoom(last.Stop) && a.Cause == train.StopTimeLimit
	if !last.Live() || last.Stop != train.StopNone && !again {
		return fmt.Errorf("asks %s/%d to stop to %s, which is %s with %q", a.Job, a.Number, a.Cause, last.Phase, last.Stop)
	}
	if last.Stop = a.Cause; !again {
		last.StopSince, w.StopSeen[ReportKey{a.Job, a.Number}] = w.Now.Add(w.step), w.Now
	}
	w.Attempts[a.Job] = last
	return nil
}

func (w *world) rebatch(a Action, last train.Attempt) error {
	if !last.Live() || a.Generation <= max(last.Generation, last.BatchGeneration) {
		return fmt.Errorf("changes the batch of %s/%d by plan %d, which is %s by plan %d", a.Job, a.Number, a.Generation, last.Phase, last.Generation)
	}
	last.Batch, last.BatchGeneration = a.Batch, a.Generation
	w.Attempts[a.Job] = last
	return nil
}

func (w *world) withdrawStop(a Action, last train.Attempt) error {
	key := ReportKey{a.Job, a.Number}
	if !last.Live() || last.Stop == train.StopNone || w.Reports[key].StopAnswered {
		return fmt.Errorf("lets %s/%d go on, which is %s with %q", a.Job, a.Number, last.Phase, last.Stop)
	}
	last.Stop, last.StopSince = train.StopNone, time.Time{}
	if a.Cause == train.StopRetune { // the wanted parameters were refused
		w.Retunes[key] = train.Reason{}
	}
	w.Attempts[a.Job] = last
	delete(w.StopSeen, key)
	return nil
}

func (w *world) kill(a Action, last train.Attempt) {
	if last.Stop != a.Cause {
		last.Stop, last.StopSince = a.Cause, w.Now
		w.Attempts[a.Job] = last
	}
	if last.Ending != nil {
		w.exit(a.Job, *last.Ending)
	} else {
		w.exit(a.Job, train.Exit{Forced: true, Signal: "SIGTERM"})
	}
}

func (w *world) decide(a Action, last train.Attempt) error {
	if last.Live() || last.Outcome != train.OutcomeNone {
		return fmt.Errorf("decides %s/%d again", a.Job, a.Number)
	}
	last.Outcome = a.Verdict.Outcome
	if last.Outcome == train.OutcomeRecovering {
		last.NotBefore = w.Now.Add(w.step + a.Verdict.Retry)
	}
	w.Attempts[a.Job] = last
	return nil
}

func (w *world) cancel(a Action, last train.Attempt) error {
	if last.Live() || last.Ends(w.Jobs[a.Job]) {
		return fmt.Errorf("cancels %s, whose attempt is %s, %q", a.Job, last.Phase, last.Outcome)
	}
	last.Job, last.Node, last.Backend, last.Phase, last.Outcome, last.Published = a.Job, w.Realm.Machine, w.Realm.Backend, train.PhaseExited, train.OutcomeCancelled, false
	last.Resumed = w.Jobs[a.Job].Resumed
	w.Attempts[a.Job] = last
	return nil
}

func (w *world) mayStart(a Action, last train.Attempt, tried bool) error {
	switch {
	case tried && (last.Live() || !last.Published):
		return fmt.Errorf("starts %s/%d while attempt %d is %s, published %t", a.Job, a.Number, last.Number, last.Phase, last.Published)
	case last.Ends(w.Jobs[a.Job]):
		return fmt.Errorf("starts %s/%d, which has %s", a.Job, a.Number, last.Outcome)
	case tried && a.Number != last.Number+1 || !tried && a.Number != w.Jobs[a.Job].Attempt+1:
		return fmt.Errorf("starts %s/%d after %d", a.Job, a.Number, last.Number)
	case w.step == 0 && w.Now.Before(last.NotBefore):
		return fmt.Errorf("starts %s/%d %s too early", a.Job, a.Number, last.NotBefore.Sub(w.Now))
	case w.Jobs[a.Job].Wants() != train.WantRun:
		return fmt.Errorf("starts %s/%d, which is to be %s", a.Job, a.Number, w.Jobs[a.Job].Wants())
	}
	w.log = append(w.log, fmt.Sprintf("%s/%d", a.Job, a.Number))
	return nil
}

func (w *world) publish(id train.JobID, last train.Attempt) error {
	if last.Published || last.Outcome == train.OutcomeNone {
		return fmt.Errorf("publishes %s again", id)
	}
	last.Published = true
	w.Attempts[id] = last
	w.facts = append(w.facts, last)
	return nil
}

// fold lets the register fold the published facts; until then it does not know them.
func (w *world) fold() error {
	for _, a := range w.facts {
		job := w.Jobs[a.Job]
		if a.Outcome.Terminal() && a.Resumed != job.Resumed {
			continue // published again after a crash, and resumed since
		}
		if job.State.Terminal() {
			return fmt.Errorf("%s ends as %s after it ended as %s", a.Job, a.Outcome, job.State)
		}
		if job.Spec.TimeLimit > 0 { // scenarios about grace periods have no run time
			job.Attempt = a.Number
			job.RunSeconds += a.ExitedAt.Sub(a.StartedAt).Seconds()
		}
		if a.Outcome.Terminal() || a.Outcome == train.OutcomePreempted || a.Outcome == train.OutcomeRecovering {
			job.State = train.State(a.Outcome)
		}
		w.Jobs[a.Job] = job
	}
	w.facts = nil
	return nil
}

// want does what the register does of the wish of a person.
func (w *world) want(job *train.Job, wanted train.Wanted, requeue bool) {
	if job.State == train.StateFailed || job.State == train.StateCancelled {
		if wanted.State != train.WantRun || requeue {
			return
		}
		job.State, job.CancelRequested = train.StateQueued, false
		job.Resumed++
		job.Attempt = max(job.Attempt, w.Attempts[job.ID].Number)
	}
	if requeue {
		wanted.Leave = w.Attempts[job.ID].Number
	}
	job.Wanted = wanted
}

func (w *world) exit(id train.JobID, e train.Exit) {
	a := w.Attempts[id]
	if !a.Live() {
		return
	}
	a.Phase, a.Exit, a.ExitedAt = train.PhaseExited, &e, w.Now.Add(w.step)
	w.Attempts[id] = a
}

// trouble makes a part of an attempt fail.
func (w *world) trouble(id train.JobID, e train.Exit) {
	a := w.Attempts[id]
	if a.Live() && a.Ending == nil {
		a.Ending = &e
		w.Attempts[id] = a
	}
}

// oversubscribed finds a device that two attempts hold.
func (w *world) oversubscribed() error {
	holders, parts := map[train.NodeDevice]train.Attempt{}, map[train.NodeDevice]unit.Bytes{}
	for id, a := range w.Attempts {
		if !a.Live() {
			continue
		}
		for _, at := range train.NodeDevices(a.Places()) {
			parts[at] += a.Memory
			if other, held := holders[at]; held && (a.Memory == 0 || other.Memory == 0) || parts[at] > 16*unit.GiB {
				return fmt.Errorf("%s of %s is held by %s and by %s, %s of it in parts", at.Device, at.Node, other.Job, id, parts[at])
			}
			holders[at] = a
		}
	}
	return nil
}

func describe(a Action) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s/%d", strings.ReplaceAll(string(a.Kind), "_", " "), a.Job, a.Number)
	switch a.Kind {
	case Start:
		fmt.Fprintf(&b, " on %s of plan %d", train.JoinPlaces(a.Places), a.Generation)
		if a.StartedEpochs > 0 {
			fmt.Fprintf(&b, ", %d epochs done", a.StartedEpochs)
		}
		if a.StartedStep > 0 {
			fmt.Fprintf(&b, ", %d steps of the next", a.StartedStep)
		}
		if a.LostInARow > 0 {
			fmt.Fprintf(&b, ", lost %d in a row", a.LostInARow)
		}
		if a.Retries > 0 {
			fmt.Fprintf(&b, ", retry %d", a.Retries)
		}
		if a.UnstartedInARow > 0 {
			fmt.Fprintf(&b, ", unstarted %d in a row", a.UnstartedInARow)
		}
	case Rebatch:
		fmt.Fprintf(&b, " by plan %d: %+v", a.Generation, a.Batch)
	case RequestStop, Kill:
		fmt.Fprintf(&b, " to %s: %s", cmp.Or(string(a.Cause), "end it"), a.Reason.Message)
	case Decide:
		fmt.Fprintf(&b, ": %s after %d epochs", a.Verdict.Outcome, a.Verdict.EpochsDone)
		for _, more := range []string{a.Verdict.Note, a.Verdict.Reason.String()} {
			if more != "" {
				b.WriteString("; " + more)
			}
		}
		if a.Verdict.Forced {
			b.WriteString("; forced")
		}
		if r := a.Verdict.Resume; r.EpochStep > 0 {
			fmt.Fprintf(&b, " and %d steps", r.EpochStep)
		}
		if again := a.Verdict.Resume.RepeatedEpochs; again > 0 {
			fmt.Fprintf(&b, "; %d epochs are in no checkpoint", again)
		}
		if lost := a.Verdict.Resume.LostSteps; lost > 0 {
			fmt.Fprintf(&b, "; %d steps lost", lost)
		}
		if a.Verdict.Retry > 0 {
			fmt.Fprintf(&b, "; again in %s", a.Verdict.Retry)
		}
	case WithdrawStop:
		fmt.Fprintf(&b, " for plan %d", a.Generation)
		if a.Cause != train.StopNone {
			fmt.Fprintf(&b, ", it did not leave to %s", a.Cause)
		}
	case Publish, Cancel:
	}
	return b.String()
}

// settle acts until nothing is left to do and returns what was done.
func (w *world) settle() ([]string, error) {
	var done []string
	for range 100 {
		if err := w.fold(); err != nil {
			return done, err
		}
		actions := w.actions()
		if len(actions) == 0 {
			return done, nil
		}
		for _, a := range actions {
			done = append(done, describe(a))
			if err := w.act(a); err != nil {
				return done, err
			}
			if err := w.oversubscribed(); err != nil {
				return done, err
			}
		}
	}
	return done, fmt.Errorf("never settles: %v", done[len(done)-4:])
}

func (w *world) ids() []train.JobID {
	ids := make([]train.JobID, 0, len(w.Jobs))
	for id := range w.Jobs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
