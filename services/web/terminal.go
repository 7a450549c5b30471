package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/packets"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/index"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// mostTerminals is how many terminals a person has open at once.
const mostTerminals = 32

// sessionCheck is how often a terminal checks that its session has not ended.
const sessionCheck = time.Second

// terminal connects the terminal of a person with a job of his. The body of the request is what he types, the answer
// what he sees, both in packets; the first packet is a rpc.TerminalRequest.
func (s server) terminal(w http.ResponseWriter, r *http.Request) {
	c := http.NewResponseController(w)
	// Without full duplex the server reads the whole body before it sends a refusal. With it the connection cannot be
	// used again: the server would read the rest of the body and the next request at the same time.
	err := c.EnableFullDuplex()
	w.Header().Set("Connection", "close")
	var pipe *bus.Pipe
	var end func()
	if err == nil {
		pipe, end, err = s.dialTerminal(r)
	}
	if err != nil {
		writeProblem(w, asProblem(err))
		return
	}
	defer end()
	defer pipe.Close()
	w.Header().Set("Content-Type", packets.MediaType)
	w.WriteHeader(http.StatusOK)
	if errors.Join(c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{}), c.Flush()) != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	var both conc.WaitGroup
	defer both.Wait()
	stop := func() { cancel(); _ = c.SetReadDeadline(time.Now()) }
	defer stop()
	both.Go(func() {
		defer stop()
		typed(ctx, r.Body, pipe)
	})
	both.Go(func() {
		defer stop()
		pipe.Watch(ctx)
	})
	both.Go(func() {
		defer stop()
		s.whileMay(ctx, r)
	})
	for {
		packet, err := pipe.Receive(ctx)
		if err == nil {
			err = errors.Join(packets.Write(w, packet), c.Flush())
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler) // the person's end sees that the connection is lost, and comes again
		}
	}
}

// whileMay returns once the session of a person who has a terminal has ended, or this service ends.
func (s server) whileMay(ctx context.Context, r *http.Request) {
	again := time.NewTicker(sessionCheck)
	defer again.Stop()
	for s.door.remains(r) {
		select {
		case <-again.C:
		case <-s.closing:
			return
		case <-ctx.Done():
			return
		}
	}
}

// typed passes on what a person types, until he leaves.
func typed(ctx context.Context, from io.Reader, to *bus.Pipe) {
	for {
		packet, err := packets.Read(from, 2*rpc.TerminalPacketSize)
		if err != nil || to.Send(ctx, packet) != nil {
			return
		}
	}
}

// dialTerminal opens a pipe to the executor that has the job which the path names, if it is the caller's: what is typed
// runs with the owner's rights.
func (s server) dialTerminal(r *http.Request) (pipe *bus.Pipe, end func(), err error) {
	id, err := train.ParseJobID(r.PathValue("id"))
	if err != nil {
		return nil, nil, err
	}
	person, err := s.caller(r)
	if err == nil && person.Name != "" { // the owner of the installation may what the executor may
		if err = s.mayToJob(r, access.Attach, id); err == nil {
			err = s.inTime(person)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	first, err := packets.Read(r.Body, 2*rpc.TerminalPacketSize)
	var asks rpc.TerminalRequest
	if err = errors.Join(err, json.Unmarshal(first, &asks)); err != nil {
		return nil, nil, problemError{problem(http.StatusUnprocessableEntity, "the first packet: "+err.Error(), "")}
	}
	asks.Job = id
	node := train.NodeID("")
	s.known.read(func(x *index.Index) {
		if job := x.Jobs.Get(string(id)); job != nil {
			node = view.Stand(x, *job).Terminal
		}
	})
	if node == "" {
		return nil, nil, problemError{problem(http.StatusConflict, fmt.Sprintf("job %s does not run, or as a pod, to which Switchyard attaches no terminal", id), "")}
	}
	end, begun := s.terminals.begin(person.Name, mostTerminals)
	if !begun {
		return nil, nil, problemError{problem(http.StatusTooManyRequests, fmt.Sprintf("%d terminals are open", mostTerminals), "close one")}
	}
	ctx, cancel := context.WithTimeout(r.Context(), waiting)
	defer cancel()
	pipe, err = bus.Dial(ctx, s.bus, rpc.TerminalSubject(node), asks)
	if err != nil {
		end()
		return nil, nil, asked(err)
	}
	return pipe, end, nil
}
