package web

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/index"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

const (
	// gathering is how long changes are gathered into one event.
	gathering = 250 * time.Millisecond
	// keepAlive is the time between comments that show a silent stream to be alive.
	keepAlive = 15 * time.Second
)

// waiting is how long an answer waits for something to say.
const waiting = 20 * time.Second

// records answers with the records of some jobs or, since a position, with those that have changed, once there are any.
func (s server) records(route api.Route, r *http.Request) (answer, error) {
	values := r.URL.Query()
	ids := strings.Split(values.Get("id"), ",")
	person, err := s.caller(r)
	if err != nil {
		return answer{}, err
	}
	at, known := s.known.parse(values.Get("since"))
	late := time.NewTimer(waiting)
	defer late.Stop()
	for known {
		var held view.Held
		last, complete, news := s.known.follow(at, func(x *index.Index, changes []change) { held = view.Pick(x, touched(x, ids, changes)) })
		if !complete {
			break
		}
		if at = last; len(held.Jobs) > 0 {
			return answer{position: s.known.position(at), body: publicHeld(person, held)}, nil
		}
		select {
		case <-news:
			continue
		case <-late.C:
		case <-s.closing:
		case <-r.Context().Done():
		}
		return answer{position: s.known.position(at), body: view.Held{Jobs: []*train.Job{}}}, nil
	}
	var held view.Held
	position := s.known.read(func(x *index.Index) { held = view.Pick(x, ids) })
	return answer{position: position, body: publicHeld(person, held)}, nil
}

// touched returns the ids of jobs whose records have changed, and of those that the newest plan is the first to know.
func touched(x *index.Index, ids []string, changes []change) []string {
	var touched []string
	planned := false
	for _, c := range changes {
		switch {
		case c.bucket == string(index.Plan):
			planned = true
		case c.bucket == string(contract.Jobs) && slices.Contains(ids, c.key) && !slices.Contains(touched, c.key):
			touched = append(touched, c.key)
		}
	}
	if planned {
		rest := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return slices.Contains(touched, id) })
		touched = append(touched, view.Planned(x, rest)...)
	}
	return touched
}

// changes streams what changes until the caller, his session or the service goes.
func (s server) changes(w http.ResponseWriter, r *http.Request) {
	position := cmp.Or(r.Header.Get(api.PositionHeader), r.URL.Query().Get("since"))
	at, known := s.known.parse(position)
	if position == "" {
		at, known = s.known.now(), true
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // the request has been read; its connection stays
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	if r.Method == http.MethodHead {
		return // there is nothing to wait for
	}
	fmt.Fprint(w, ": changes of jobs, nodes, models and the plan\n\n")
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	for s.door.remains(r) && control.Flush() == nil {
		run.AnswerWithin(w, keepAlive+answerTime) // a client that reads nothing does not keep its connection
		var text []byte
		last, complete, news := s.known.follow(at, func(x *index.Index, changes []change) {
			text = s.told.between(at, changes[len(changes)-1].sequence, func() api.Changes { return s.gather(x, changes) })
		})
		if !known || !complete {
			writeEvent(w, api.EventReload, s.known.position(last), []byte("{}"))
			at, known = last, true
			continue
		}
		if at = last; text != nil {
			writeEvent(w, api.EventChanged, s.known.position(last), text)
			continue
		}
		select {
		case <-news:
			if !tick.Pause(r.Context(), gathering) {
				return
			}
		case <-alive.C:
			fmt.Fprint(w, ": still here\n\n")
		case <-r.Context().Done():
			return
		case <-s.closing:
			return
		}
	}
}

func writeEvent(w http.ResponseWriter, name, id string, data []byte) {
	fmt.Fprintf(w, "event: %s\nid: %s\ndata: %s\n\n", name, id, data)
}

// told is the newest event. Streams that have seen the same get the same, so it is made once for all of them.
type told struct {
	mu       sync.Mutex
	from, to uint64
	text     []byte
}

// between returns the event of the changes after from, up to to; nil if it would be empty.
func (t *told) between(from, to uint64, gather func() api.Changes) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if from == t.from && to == t.to {
		return t.text
	}
	t.from, t.to, t.text = from, to, nil
	if event := gather(); !event.Empty() {
		t.text, _ = json.Marshal(event) // it has nothing that cannot be encoded
	}
	return t.text
}

// gather makes one event of changes.
func (s server) gather(x *index.Index, changes []change) api.Changes {
	var event api.Changes
	jobs, nodes, models := map[train.JobID]bool{}, map[train.NodeID]bool{}, map[train.JobID]bool{}
	for _, c := range changes {
		switch c.bucket {
		case string(contract.Jobs), string(contract.Attempts):
			jobs[train.JobID(c.key)] = true
		case string(contract.Accounts):
			if id, is := strings.CutPrefix(c.key, contract.AccountPrefix); is {
				jobs[train.JobID(id)] = true
			}
		case string(contract.Nodes):
			nodes[train.NodeID(c.key)] = true
		case string(contract.Models):
			models[train.JobID(c.key)] = true
		case string(index.Plan):
			event.Plan = x.Plan().Generation
		}
	}
	event.Jobs, event.Gone = view.Some(x, slices.Sorted(maps.Keys(jobs)), s.now())
	event.Nodes, event.Models = slices.Sorted(maps.Keys(nodes)), slices.Sorted(maps.Keys(models))
	return event
}
