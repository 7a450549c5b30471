package web

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/audit"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/index"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// people finds out who asks: the user of the machine at the other end of the socket.
type people struct {
	mu    sync.Mutex
	names map[int]string
}

func newPeople() *people { return &people{names: map[int]string{}} }

// owns reports whether a user of the machine may do all that this process may.
func owns(uid int) bool { return uid == os.Geteuid() || uid == 0 }

// name returns the name of a user of the machine. A user without one is known by his number.
func (p *people) name(uid int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if name, known := p.names[uid]; known {
		return name
	}
	name := "uid" + strconv.Itoa(uid)
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		name = u.Username
	}
	p.names[uid] = name
	return name
}

// caller returns who asks. The owner of the installation, and root, are its admins and have no name here: admission
// gives their jobs the installation's own identity.
func (s server) caller(r *http.Request) (access.Person, error) {
	who, known := askerOf(r.Context())
	switch {
	case !known || !who.Owner && who.Name == "":
		return access.Person{}, problemError{problem(http.StatusForbidden, "nobody knows who asks", "")}
	case who.Owner:
		return access.Person{Role: access.Admin}, nil
	}
	person := access.Person{Name: who.Name, Role: access.User}
	key, err := access.Key(person.Name)
	if err != nil {
		return person, nil //nolint:nilerr // nobody of this name has a record
	}
	s.known.read(func(x *index.Index) {
		if known := x.Users.Get(key); known != nil {
			person = *known
		}
	})
	return person, nil
}

// may returns a problem if the caller may not do something to the jobs of an owner.
func (s server) may(r *http.Request, op access.Operation, owner access.Owner) error {
	person, err := s.caller(r)
	if err != nil {
		return err
	}
	denied, is := errors.AsType[*access.DeniedError](access.May(person, op, owner))
	if !is {
		return nil
	}
	note(s.refusals, r, denied.Person.Name, denied.Operation, denied)
	return problemError{problem(http.StatusForbidden, denied.Error(), denied.Fix())}
}

// note stores that a person was refused something.
func note(refusals *audit.Refusals, r *http.Request, person string, op access.Operation, why error) {
	refusals.Note(r.Context(), event.AccessRefused{Person: person, Door: cameBy(r), Operation: op, Request: r.Method + " " + r.URL.Path, Message: why.Error()})
}

// mayToJob is may for a job by its id.
func (s server) mayToJob(r *http.Request, op access.Operation, id train.JobID) error {
	var owner access.Owner
	known := false
	s.known.read(func(x *index.Index) {
		if job := x.Jobs.Get(string(id)); job != nil {
			owner, known = ownerOf(*job), true
		}
	})
	if !known { // admission may not have read it yet
		job, _ := s.unread(r.Context(), string(id))
		owner = ownerOf(job)
	}
	return s.may(r, op, owner)
}

func ownerOf(job train.Job) access.Owner {
	return access.Owner{User: job.Spec.User, Tenant: job.Spec.Tenant}
}

// public returns the record of a job as the caller may see it.
func public(person access.Person, job train.Job) train.Job {
	if access.May(person, access.SeeSpec, ownerOf(job)) != nil {
		return job.Public()
	}
	return job
}

// publicHeld returns records as the caller may see them.
func publicHeld(person access.Person, held view.Held) view.Held {
	for i, job := range held.Jobs {
		shown := public(person, *job)
		held.Jobs[i] = &shown
	}
	return held
}

// mayPublish returns who asks, or a problem if he may not publish a fact of a kind about what the path names.
func (s server) mayPublish(r *http.Request, kind event.Kind) (access.Person, error) {
	person, err := s.caller(r)
	if err != nil {
		return person, err
	}
	op := operationOf(kind)
	if op == access.StopExperiment {
		record, err := s.recordOfExperiment(r)
		if err != nil {
			return person, err
		}
		return person, s.may(r, op, ownerOfExperiment(record))
	}
	if kind.Entity != "job" || op == access.Submit {
		return person, s.may(r, op, access.Owner{})
	}
	return person, s.mayToJob(r, op, train.JobID(r.PathValue("id")))
}

// attribute writes into the body of a request who asks, and refuses a job in another person's name. What the body
// itself says about that counts only if the owner of the installation asks.
func attribute(body any, person access.Person) error {
	var named string
	switch b := body.(type) {
	case *event.Submitted:
		b.User = cmp.Or(b.User, person.Name)
		named = b.User
	case *event.ExperimentSubmitted:
		b.Experiment = ownedExperiment(b.Experiment, person.Name)
		var e struct{ Job struct{ User string } }
		_ = json.Unmarshal(b.Experiment, &e) // the service of experiments says what is wrong with it
		named = e.Job.User
	}
	if named != "" && person.Name != "" && named != person.Name {
		why := train.Reason{
			Code: "NotYourself", Field: "user", Hint: "leave it out: who asks is known", Message: fmt.Sprintf("the body says %.80q, but %.80q submits it", named, person.Name),
		}
		p := problem(http.StatusUnprocessableEntity, why.String(), why.Hint)
		p.Reasons = []train.Reason{why}
		return problemError{p}
	}
	event.Attribute(body, person.Name)
	return nil
}

// cameBy says how a request came: by the network of the listener's address.
func cameBy(r *http.Request) string {
	if listener, is := r.Context().Value(http.LocalAddrContextKey).(net.Addr); is && listener.Network() != "unix" {
		return strings.ToUpper(listener.Network())
	}
	return "socket"
}

// operationOf returns what it takes to publish a fact.
func operationOf(kind event.Kind) access.Operation {
	switch kind.Entity {
	case "node":
		return access.OrderNode
	case event.EntityUser:
		return access.ChangeUser
	case event.EntityTenant:
		return access.ChangeTenant
	}
	switch kind.Fact {
	case event.FactCancelRequested:
		return access.Cancel
	case event.FactStopRequested:
		return access.StopExperiment
	case event.FactEditRequested:
		return access.Edit
	case event.FactWanted:
		return access.Hold
	}
	return access.Submit
}

// audit answers with who asked for what.
func (s server) audit(route api.Route, r *http.Request) (answer, error) {
	values := r.URL.Query()
	if err := s.may(r, access.SeeAudit, access.Owner{}); err != nil {
		return answer{}, err
	}
	filter := audit.Filter{User: values.Get("user"), Job: values.Get("job")}
	if given := values.Get("from"); given != "" {
		from, err := time.Parse(time.RFC3339, given)
		if err != nil {
			return answer{}, fmt.Errorf("from: want a time such as 2026-01-31T23:00:00Z, found %q", given)
		}
		filter.From = from
	}
	entries, err := audit.Read(r.Context(), s.bus, filter)
	if err != nil {
		return answer{}, problemError{problem(http.StatusServiceUnavailable, err.Error(), "ask again")}
	}
	return answer{body: entries}, nil
}
