package jobapi

import (
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// session is what is remembered of one attempt while this process lives. Losing it loses figures, never facts.
type session struct {
	// attempt identifies the session; its mutable fields are only up to date in newest.
	attempt train.Attempt
	// recording is held while the record is read or written for its stop answer: an uncertain answer must not be
	// taken as given.
	recording sync.Mutex

	mu     sync.Mutex
	newest train.Attempt
	// report is the record in the bucket as last read or written; loaded is set once it was read.
	report train.AttemptReport
	loaded bool
	// recorded is the highest number of epochs that was reported.
	recorded int
	// allowance is what its facts may still take of JOBS, in bytes. held are those that have to wait, by subject: the
	// newest of each. thinned is set once one had to.
	allowance *rate.Limiter
	held      map[string]effect
	thinned   bool
	// beats is when the last heartbeat of a rank was accepted.
	beats map[int64]time.Time
	// running sums up the current epoch, as rank 0 sees it, and steps is how far it is.
	running tally
	steps   train.Steps
	outside outside
	// answers are the answers by number of finished epochs: the processes of an attempt ask one after the other and
	// must leave together.
	answers map[int64]bool
}

// tally sums up the heartbeats of an epoch.
type tally struct {
	epochSeconds float64
	stepSeconds  float64 // the sum over steps
	steps        int64
	memory       unit.Bytes
}

func (t *tally) meanStepSeconds() float64 {
	if t.steps == 0 {
		return 0
	}
	return t.stepSeconds / float64(t.steps)
}

func (t *tally) step(seconds float64, steps int64, memory unit.Bytes) {
	steps = max(steps, 1)
	t.stepSeconds += seconds * float64(steps)
	t.steps += steps
	t.memory = max(t.memory, memory)
}

func newSession(a train.Attempt) *session {
	return &session{attempt: a, newest: a, beats: map[int64]time.Time{}, answers: map[int64]bool{}, allowance: newAllowance(), held: map[string]effect{}}
}

// update stores the present state of the attempt.
func (s *session) update(a train.Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = a
}

// current returns the present state of the attempt.
func (s *session) current() train.Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest
}

// beatDue reports whether a heartbeat of a rank may be published now.
func (s *session) beatDue(rank int64, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.beats[rank]; ok && now.Sub(last) < beatSpacing {
		return false
	}
	s.beats[rank] = now
	return true
}

// gather adds to the current epoch.
func (s *session) gather(add func(*tally)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add(&s.running)
}

// takeTally ends the current epoch.
func (s *session) takeTally() tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.running
	s.running = tally{}
	return t
}

// answered returns the answer given after this many epochs.
func (s *session) answered(epochs int64) (stop, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stop, known = s.answers[epochs]
	return stop, known
}

// remember keeps an answer, and the answers of the few epochs before. If another process was answered meanwhile, that
// answer stands.
func (s *session) remember(epochs int64, stop bool) bool {
	const kept = 4
	s.mu.Lock()
	defer s.mu.Unlock()
	if first, known := s.answers[epochs]; known {
		return first
	}
	s.answers[epochs] = stop
	for e := range s.answers {
		if e < epochs-kept || e > epochs+kept {
			delete(s.answers, e)
		}
	}
	return stop
}

func (s *session) known() train.AttemptReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report
}

// learn merges the record as it is in the bucket.
func (s *session) learn(r train.AttemptReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.loaded {
		s.recorded = max(s.recorded, r.EpochsDone)
	}
	s.report, s.loaded = merge(s.report, r), true
}

// epochsRecorded raises and returns the highest number of epochs that was reported.
func (s *session) epochsRecorded(kept int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recorded = max(s.recorded, kept)
	return s.recorded
}

func (s *session) isLoaded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loaded
}

// sessions holds one session per job.
type sessions struct {
	mu    sync.Mutex
	byJob map[train.JobID]*session
}

// of returns the session of an attempt. It forgets the session of an earlier attempt of the job, and those that stale
// reports.
func (s *sessions) of(a train.Attempt, stale func(train.Attempt) bool) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.byJob[a.Job]; found != nil && found.attempt.Number == a.Number {
		return found
	}
	for job, old := range s.byJob {
		if stale(old.attempt) {
			delete(s.byJob, job)
		}
	}
	made := newSession(a)
	s.byJob[a.Job] = made
	return made
}

func (s *sessions) all() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.byJob))
}
