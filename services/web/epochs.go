package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/index"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

const (
	// readsAtOnce and readsOfPerson bound the answers for which the facts of a job are read at once: a job may have
	// hundreds of megabytes.
	readsAtOnce, readsOfPerson = 4, 2
)

// reading lets requests wait for their turn to read.
type reading struct {
	slots  chan struct{}
	mu     sync.Mutex
	people map[string]*turns
}

// turns are the slots of a person, and how many requests have or want one.
type turns struct {
	slots chan struct{}
	asked int
}

func newReading() *reading {
	return &reading{slots: make(chan struct{}, readsAtOnce), people: map[string]*turns{}}
}

// do calls f when it is a person's turn.
func (r *reading) do(ctx context.Context, person string, f func() error) error {
	own := r.enter(person)
	defer r.leave(person)
	for _, slots := range []chan struct{}{own, r.slots} {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			p := problem(http.StatusTooManyRequests, "too many requests read the facts of jobs at the moment", "try again")
			p.RetrySeconds = 1
			return problemError{p}
		}
	}
	return f()
}

func (r *reading) enter(person string) chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.people[person]
	if t == nil {
		t = &turns{slots: make(chan struct{}, readsOfPerson)}
		r.people[person] = t
	}
	t.asked++
	return t.slots
}

func (r *reading) leave(person string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.people[person]; t.asked > 1 {
		t.asked--
		return
	}
	delete(r.people, person)
}

// epochs answers with what a job has reported: with after page by page, else with some of all if they are many.
func (s server) epochs(route api.Route, r *http.Request) (answer, error) {
	q, err := route.Decode(r.URL.Query())
	if err != nil {
		return answer{}, err
	}
	all := view.AllEpochs()
	if text := r.URL.Query().Get("after"); text != "" {
		after, err := strconv.Atoi(text)
		if err != nil || after < 0 {
			return answer{}, fmt.Errorf("after: want a number of epochs, found %.40q", text)
		}
		all = view.EpochsAfter(after)
	}
	var id train.JobID
	position, err := s.find(r, q.User, func(_ *index.Index, job train.Job) { id = job.ID })
	if err != nil {
		return answer{}, err
	}
	person, err := s.callerInTime(r)
	if err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), waiting)
	defer cancel()
	var body encoded
	err = s.reading.do(ctx, person.Name, func() error {
		subject := event.JobSubject(id, event.FactEpochEnded).String()
		err := s.bus.Stored(ctx, event.StreamJobs, []string{subject}, time.Time{}, func(m bus.Message) { all.Add(m.Time, m.Data) })
		if err != nil {
			return problemError{problem(http.StatusServiceUnavailable, fmt.Sprintf("read the epochs of job %s: %v", id, err), "ask again")}
		}
		body, err = json.Marshal(all.Epochs)
		return err
	})
	return answer{position: position, body: body}, err
}
