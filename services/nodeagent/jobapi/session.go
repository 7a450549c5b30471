package jobapi

import (
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// session is what is remembered of one attempt while this process lives. Losing it costs figures, never facts.
type session struct {
	// attempt is who this is; of what may change in it only newest is right.
	attempt train.Attempt
	// recording is held while the record is read or written for what it says of a stop: an answer that is not certain must not be learned as given.
	recording sync.Mutex

	mu     sync.Mutex
	newest train.Attempt
	// report is the record in the bucket as last seen or written; loaded says that it was read.
	report train.AttemptReport
	loaded bool
	// recorded is the highest number of epochs of which a fact is known to be kept.
	recorded int
	// beats is when the last heartbeat of a rank was let through.
	beats map[int64]time.Time
	// running gathers the epoch under way, as rank 0 sees it.
	running tally
	// answers are what was answered after so many epochs: the processes of an attempt ask one after the other and must leave together.
	answers map[int64]bool
}

// tally gathers what heartbeats say between two ends of an epoch.
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
	return &session{attempt: a, newest: a, beats: map[int64]time.Time{}, answers: map[int64]bool{}}
}

// update takes the attempt as it stands now.
func (s *session) update(a train.Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = a
}

func (s *session) stopCause() train.StopCause {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest.Stop
}

// beatDue says whether a heartbeat of a rank may be published now.
func (s *session) beatDue(rank int64, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.beats[rank]; ok && now.Sub(last) < beatSpacing {
		return false
	}
	s.beats[rank] = now
	return true
}

// gather adds to the epoch under way.
func (s *session) gather(add func(*tally)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add(&s.running)
}

// takeTally ends the epoch under way.
func (s *session) takeTally() tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.running
	s.running = tally{}
	return t
}

// answered gives what was said after so many epochs.
func (s *session) answered(epochs int64) (stop, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stop, known = s.answers[epochs]
	return stop, known
}

// remember keeps an answer, and the answers of the few epochs before. If another process was answered meanwhile, that answer stands.
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

// learn takes the record as it stands in the bucket.
func (s *session) learn(r train.AttemptReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.loaded {
		s.recorded = max(s.recorded, r.EpochsDone)
	}
	s.report, s.loaded = merge(s.report, r), true
}

// epochsRecorded gives the highest number of epochs of which a fact is kept, and raises it.
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

// of gives the session of an attempt; that of an earlier attempt of the job is forgotten, and so are those that stale names.
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
