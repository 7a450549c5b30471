// Package look bounds how long a question to a file system takes. The kernel waits for ever for a file server that is
// away (a hard mount of NFS, a FUSE daemon that hangs), and nothing ends such a call: it is left behind.
package look

import (
	"errors"
	"sync"
	"time"

	"github.com/sourcegraph/conc"
)

// Patience is how long a question may take.
const Patience = 5 * time.Second

// mostHung bounds the questions that are left behind, since each holds a thread. Go ends a process with 10,000 of them.
const mostHung = 256

// ErrHangs says that a file system has not answered in time.
var ErrHangs = errors.New("does not answer")

// Looks asks a question about paths, or about what else names a place in a file system. While it is open about a place,
// all who ask wait for the same answer, and nobody waits once it is known to hang.
type Looks[K comparable, T any] struct {
	ask    func(place K) T
	asking conc.WaitGroup

	mu   sync.Mutex
	open map[K]*question[T]
	hung int
}

type question[T any] struct {
	began  time.Time
	hangs  bool
	answer T
	done   chan struct{}
}

// New returns looks with a question, which may take for ever.
func New[K comparable, T any](ask func(place K) T) *Looks[K, T] {
	return &Looks[K, T]{ask: ask, open: map[K]*question[T]{}}
}

// At asks about a place. It returns ErrHangs if no answer comes in time.
func (l *Looks[K, T]) At(place K) (T, error) {
	q := l.begin(place)
	if q == nil {
		return *new(T), ErrHangs
	}
	timer := time.NewTimer(time.Until(q.began.Add(Patience)))
	defer timer.Stop()
	select {
	case <-q.done:
		return q.answer, nil
	case <-timer.C:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[place] != q { // the answer has just come
		return q.answer, nil
	}
	if !q.hangs {
		q.hangs = true
		l.hung++
	}
	return *new(T), ErrHangs
}

// begin returns the open question about a place; nil if too many hang to ask another one.
func (l *Looks[K, T]) begin(place K) *question[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.open[place]
	if q != nil || l.hung >= mostHung {
		return q
	}
	q = &question[T]{began: time.Now(), done: make(chan struct{})}
	l.open[place] = q
	l.asking.Go(func() {
		answer := l.ask(place)
		l.mu.Lock()
		defer l.mu.Unlock()
		if q.answer = answer; q.hangs {
			l.hung--
		}
		delete(l.open, place)
		close(q.done)
	})
	return q
}
