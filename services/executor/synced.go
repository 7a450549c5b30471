package executor

import "sync"

// synced records which buckets were read completely once. Until all were, a missing record means nothing.
type synced struct {
	queue *workqueue

	mu                                       sync.Mutex
	jobs, nodes, attempts, reports, settings bool
	// orphans is set when the machine has to be compared with the records again.
	orphans bool
}

// mark returns a function that sets flags once a bucket was read completely.
func (s *synced) mark(flags ...*bool) func() {
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, f := range flags {
			*f = true
		}
		s.queue.wake.Send()
	}
}

// ready reports whether every bucket was read.
func (s *synced) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs && s.nodes && s.attempts && s.reports && s.settings
}

// attemptsKnown reports whether all attempts were read.
func (s *synced) attemptsKnown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts
}

// orphansDue returns true once after each complete listing: the machine is to be compared with the records.
func (s *synced) orphansDue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := s.orphans
	s.orphans = false
	return due
}
