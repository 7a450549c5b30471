package admission

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/throttle"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/fit"
	"github.com/switchyard-dl/switchyard/services/admission/register"
)

// handler handles the facts of each job one by one, and those of different jobs side by side.
type handler struct {
	bus  *bus.Bus
	jobs *bus.KV[train.Job]
	// experiments says which jobs are trials.
	experiments *bus.KV[contract.Trials]
	people      *people
	records     records
	inventory   inventory
	queue       queue
	// rates bound what users of the bus ask for.
	rates    *throttle.Rates
	who      fit.Identity
	seal     *identity.Seal
	folders  folders
	log      *slog.Logger
	meters   *meters
	progress progress
	answers  answers
	// folding is locked while the register is made again.
	folding sync.RWMutex
}

func newHandler(b *bus.Bus, jobs *bus.KV[train.Job], who fit.Identity, folders folders, log *slog.Logger, m *meters) *handler {
	return &handler{
		bus: b, jobs: jobs, people: unknownPeople(), who: who, folders: folders, log: log, meters: m, rates: throttle.New(),
		answers:   answers{sequences: map[uint64]bool{}},
		records:   records{entries: map[train.JobID]bus.Entry[train.Job]{}},
		inventory: inventory{nodes: map[train.NodeID]train.Node{}},
		queue:     queue{waiting: map[train.JobID]waiter{}, tenants: map[string]int{}, after: map[train.JobID]awaiting{}, submitted: map[train.JobID]train.JobID{}},
	}
}

// lane is the job that a fact is about. A submission that may name other jobs has none, since the facts before it count
// for its verdict.
func lane(m bus.Message) string {
	names := bytes.Contains(m.Data, []byte(`"after"`)) || bytes.Contains(m.Data, []byte(`"continue"`))
	if m.Parsed.Fact == event.FactSubmitted && names {
		return ""
	}
	return m.Parsed.ID
}

// handle may be repeated: a message that was handled before, wholly or in part, ends in the same record and the same
// facts.
func (d *handler) handle(ctx context.Context, m bus.Message) ([]event.Fact, error) {
	d.folding.RLock()
	defer d.folding.RUnlock()
	d.progress.reach(m.Sequence)
	if m.ParseErr != nil {
		return nil, fmt.Errorf("%w: InvalidSubject: %w", bus.ErrPoison, m.ParseErr)
	}
	id := train.JobID(m.Parsed.ID)
	if m.Parsed.Fact == event.FactSubmitted {
		return d.submitted(ctx, id, m)
	}
	if err := d.inTime(ctx, id, m); err != nil {
		return nil, err
	}
	return d.follow(ctx, id, m)
}

// follow handles a fact about a job that was submitted before.
func (d *handler) follow(ctx context.Context, id train.JobID, m bus.Message) ([]event.Fact, error) {
	if m.Parsed.Fact == event.FactEditRequested {
		return d.edit(ctx, id, m)
	}
	folded := d.answers.folded(m.Sequence)
	if !folded {
		if err := d.fold(ctx, id, m); err != nil {
			return nil, err
		}
	}
	if train.State(m.Parsed.Fact).Terminal() {
		return d.released(id, train.State(m.Parsed.Fact)), nil
	}
	if folded {
		return nil, nil
	}
	return d.unfold(ctx, id, m)
}

// unfold publishes what a fact of an array means for its jobs, and returns what the end of the last one means for those
// that wait for the array. The keys of these facts follow from the array, so no repetition submits a job twice or
// leaves one out.
func (d *handler) unfold(ctx context.Context, id train.JobID, m bus.Message) ([]event.Fact, error) {
	kind, _ := event.Find(m.Parsed)
	if m.Parsed.Fact != event.FactAdmitted && m.Parsed.Fact != event.FactDependencyEnded && kind.Publisher != event.Anyone {
		return nil, nil
	}
	e, err := d.record(ctx, id)
	job := e.Value
	switch {
	case errors.Is(err, bus.ErrNotFound), err == nil && job.Spec.Array == "":
		return nil, nil
	case err != nil:
		return nil, err
	case m.Parsed.Fact == event.FactDependencyEnded:
		if !job.State.Terminal() {
			return nil, nil
		}
		return d.released(id, job.State), nil
	}
	a, err := train.ParseArray(job.Spec.Array)
	if err != nil {
		return nil, fmt.Errorf("%w: InvalidArray: %w", bus.ErrPoison, err)
	}
	var facts []event.Fact
	for _, index := range a.Indices {
		member := train.MemberID(id, index)
		switch _, ended := job.Ended[member]; {
		case ended:
		case d.queue.foreign(id, member):
			facts = append(facts, dependencyEnded(id, member, train.StateRejected))
		case m.Parsed.Fact == event.FactAdmitted:
			submission := event.OnceFact(member, event.FactSubmitted, "submitted", event.Submitted{Spec: job.Spec.Member(id, a, index)})
			submission.By = job.Spec.User
			submission.Time = m.Time.Add(time.Duration(len(facts))) // they queue in the order of their indices
			facts = append(facts, submission)
		default:
			facts = append(facts, passedOn(m, member, fmt.Sprintf("%s/array/%d", m.Parsed.Fact, m.Sequence)))
		}
	}
	for i := range facts {
		facts[i].Cause, facts[i].TraceParent = m.Key, m.TraceParent
	}
	return nil, d.bus.PublishTogether(ctx, facts...)
}

// passedOn returns the same request about a job, with another key. Admission then vouches for the person who asks.
func passedOn(m bus.Message, id train.JobID, key string) event.Fact {
	f := event.JobFact(id, m.Parsed.Fact, key, json.RawMessage(m.Data))
	if who, err := m.Asker(); err == nil { // else the fact was not followed
		f.By, f.Door = who.Name(), who.Door
	}
	return f
}

// released returns the facts for the jobs that wait for a job that has ended. They are returned again if the message is
// delivered again.
func (d *handler) released(ended train.JobID, as train.State) []event.Fact {
	var facts []event.Fact
	ends := d.queue.waitingFor(ended, as)
	for _, id := range slices.Sorted(maps.Keys(ends)) {
		facts = append(facts, dependencyEnded(id, ended, ends[id]))
	}
	return facts
}

func dependencyEnded(waits, ended train.JobID, as train.State) event.Fact {
	return event.JobFact(waits, event.FactDependencyEnded, "dependency/"+string(ended), event.DependencyEnded{Job: ended, State: as})
}

// submission is the decoded body of a submitted fact.
type submission struct {
	spec train.Spec
	hash string
	at   time.Time
	// by is the person who submits, if web or admission itself says so and has signed that.
	by string
	// peer is this person if the kernel has named him to web: the user at the other end of its socket.
	peer string
	// role has published it: see bus.Asker.
	role string
	// reasons are all that is wrong with it.
	reasons []train.Reason
}

// maxSpecBytes leaves room in the admitted fact for defaults and resolved paths.
const maxSpecBytes = event.MaxBodyBytes - 32<<10

// read decodes a submission. An unreadable submission is identified by its hash.
func read(m bus.Message) submission {
	s := submission{hash: register.HashBytes(m.Data), at: m.Stored}
	who, err := m.Asker()
	if err != nil {
		s.reasons = []train.Reason{{Code: "UnprovenAsker", Message: err.Error(), Hint: "leave the header " + event.HeaderBy + " out, or submit through the service web"}}
		return s
	}
	s.by, s.peer, s.role = who.Person, fromSocket(who), who.Role
	if m.Parsed.Version != 1 {
		s.reasons = []train.Reason{{
			Code: "UnsupportedVersion", Message: fmt.Sprintf("want submitted.v1, found submitted.v%d", m.Parsed.Version), Hint: "submit with the scheduler's version of the command line",
		}}
		return s
	}
	s.spec, s.reasons = event.DecodeSubmission(m.Data)
	unfolded := who.Role == "" || who.Role == ownRole
	if a := s.spec.ArrayMember; a != nil && unfolded && m.Parsed.ID == string(train.MemberID(a.Array, a.Index)) {
		s.at = m.Time
	}
	encoded, err := json.Marshal(s.spec)
	if err != nil {
		s.reasons = append(s.reasons, train.Reason{Code: "MalformedJSON", Message: err.Error()})
	}
	if len(encoded) > maxSpecBytes {
		s.spec = train.Spec{}
		s.reasons = append(s.reasons,
			train.Reason{Code: "TooLarge", Message: fmt.Sprintf("the spec has %d bytes with escapes, at most %d are stored", len(encoded), maxSpecBytes)})
	}
	if len(s.reasons) == 0 {
		s.hash = register.HashBytes(encoded)
	}
	return s
}

func (d *handler) submitted(ctx context.Context, id train.JobID, m bus.Message) ([]event.Fact, error) {
	s := read(m)
	if !d.queue.knows(id) {
		if answered, err := d.answer(ctx, id, m, s); answered || err != nil {
			return nil, err
		}
	}
	e, created, err := d.open(ctx, id, m, s)
	switch {
	case err != nil:
		return nil, err
	case created, e.Value.LastSequence == m.Sequence:
		// The answer may be on the stream from before a crash; deciding again could give another one.
		decided, err := d.decided(ctx, id)
		if err != nil || decided {
			return nil, err
		}
		answer, err := d.decide(ctx, id, s)
		return []event.Fact{answer}, err
	case e.Value.LastSequence > m.Sequence, e.Value.SpecHash == s.hash:
		return nil, nil // handled before, or the same job again
	}
	d.log.Info("submission conflicts", "job", id)
	message := fmt.Sprintf("the id %s is taken by another submission (%s, now %s): a second, different one was ignored",
		id, e.Value.SubmittedAt.Format(time.RFC3339), e.Value.State)
	return []event.Fact{event.JobFact(id, event.FactConflicted, fmt.Sprintf("conflicted/%d", m.Sequence), event.Conflicted{Message: message})}, nil
}

// answer answers a submission that is the newest fact of its job, and then makes the record of both. answered is false
// if the job has other facts: it was submitted before, or a person has already asked something of it.
func (d *handler) answer(ctx context.Context, id train.JobID, m bus.Message, s submission) (answered bool, err error) {
	job, err := opened(id, m, s)
	if err != nil {
		return false, fmt.Errorf("%w: %w", bus.ErrPoison, err)
	}
	fact, err := d.decide(ctx, id, s)
	if err != nil {
		return false, err
	}
	fact.Time, fact.Cause, fact.TraceParent = time.Now().UTC(), m.Key, m.TraceParent
	sequence, err := d.bus.PublishNext(ctx, fact, m.Sequence)
	if errors.Is(err, bus.ErrConflict) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	f := register.Fact{Name: fact.Subject.Fact, Time: fact.Time, Sequence: sequence, Body: fact.Body}
	if job, err = d.foldSealed(job, f); err != nil {
		return false, err
	}
	revision, err := d.jobs.Swap(ctx, string(id), job, 0)
	if errors.Is(err, bus.ErrConflict) {
		return false, nil // there is a record all the same
	}
	if err != nil {
		return false, err
	}
	if job.Spec.Array == "" { // when the answer of an array comes back, its jobs are submitted
		d.answers.fold(sequence)
	}
	d.keep(bus.Entry[train.Job]{Key: string(id), Value: job, Revision: revision})
	d.meters.folded.WithLabelValues(event.FactSubmitted).Inc()
	d.count(f, job)
	return true, nil
}

// open creates the record of a new job, or returns the existing one.
func (d *handler) open(ctx context.Context, id train.JobID, m bus.Message, s submission) (bus.Entry[train.Job], bool, error) {
	if e, known := d.records.find(id); known {
		return e, false, nil
	}
	job, err := opened(id, m, s)
	if err != nil {
		return bus.Entry[train.Job]{}, false, fmt.Errorf("%w: %w", bus.ErrPoison, err)
	}
	// Nearly every submission is of a new job: writing first saves a read.
	revision, err := d.jobs.Swap(ctx, string(id), job, 0)
	if errors.Is(err, bus.ErrConflict) {
		e, err := d.record(ctx, id)
		return e, false, err
	}
	if err != nil {
		return bus.Entry[train.Job]{}, false, err
	}
	e := bus.Entry[train.Job]{Key: string(id), Value: job, Revision: revision}
	d.keep(e)
	d.meters.folded.WithLabelValues(event.FactSubmitted).Inc()
	return e, true, nil
}

// opened returns the record of a new job. It is the job of the person who submits it, whatever the body says of that:
// the record of a refused job stays.
func opened(id train.JobID, m bus.Message, s submission) (train.Job, error) {
	s.spec.User = cmp.Or(s.by, s.spec.User)
	job, err := register.Fold(train.Job{ID: id}, register.Fact{
		Name: event.FactSubmitted, Time: s.at, Sequence: m.Sequence, Body: &event.Submitted{Spec: s.spec},
	})
	job.SpecHash = s.hash
	return job, err
}

// decided reports whether the answer to a submission is on the stream.
func (d *handler) decided(ctx context.Context, id train.JobID) (bool, error) {
	for _, fact := range []string{event.FactAdmitted, event.FactRejected} {
		_, err := d.bus.Last(ctx, event.StreamJobs, event.JobSubject(id, fact))
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, bus.ErrNotFound) {
			return false, err
		}
	}
	return false, nil
}

// decide returns the answer to a submission.
func (d *handler) decide(ctx context.Context, id train.JobID, s submission) (event.Fact, error) {
	admitted, rejected, err := d.judge(ctx, id, s)
	if err != nil {
		return event.Fact{}, err
	}
	if rejected != nil {
		for _, r := range rejected.Reasons {
			d.meters.rejected.WithLabelValues(r.Code).Inc()
		}
		d.log.Info("job rejected", "job", id, "reasons", len(rejected.Reasons), "first", rejected.Reasons[0].Code,
			"infeasible", rejected.Infeasible)
		return event.OnceFact(id, event.FactRejected, "rejected", rejected), nil
	}
	if admitted.Spec.Array == "" { // an array needs no devices
		admitted.Position = d.queue.enter(id, admitted.Spec.Tenant)
	}
	if admitted.Seal, err = d.seal.Sign(train.Job{ID: id, Spec: admitted.Spec}); err != nil {
		return event.Fact{}, err
	}
	d.log.Info("job admitted", "job", id, "user", admitted.Spec.User, "position", admitted.Position)
	return event.OnceFact(id, event.FactAdmitted, "admitted", admitted), nil
}

// judge checks a submission against what this installation has, and returns the one answer or the other.
func (d *handler) judge(ctx context.Context, id train.JobID, s submission) (*event.Admitted, *event.Rejected, error) {
	verdict, where, err := d.verdict(ctx, id, s)
	if err != nil {
		return nil, nil, err
	}
	if len(verdict.Reasons) > 0 {
		return nil, &event.Rejected{Reasons: verdict.Reasons, Message: verdict.Message(), Infeasible: verdict.Infeasible}, nil
	}
	maps.DeleteFunc(where.Jobs, func(_ train.JobID, s train.State) bool { return !s.Terminal() })
	admitted := &event.Admitted{Spec: verdict.Spec, Position: d.queue.position(id), Ended: where.Jobs}
	if from := where.Continued; from != nil {
		admitted.From = event.Saved{EpochsDone: from.EpochsDone, EpochStep: from.EpochStep, EpochSteps: from.EpochSteps, Path: from.Checkpoint}
	}
	return admitted, nil, nil
}

// candidate answers with the record that a job would have if it were submitted now.
func (d *handler) candidate(ctx context.Context, c rpc.Candidate) (train.Job, error) {
	now := time.Now()
	m := bus.Message{Data: c.Spec, Stored: now, Sequence: 1, Parsed: event.JobSubject(c.ID, event.FactSubmitted)}
	s := read(m)
	s.by, s.peer = c.By, fromSocket(bus.Asker{Role: "web", Person: c.By, Door: c.Door})
	job, err := register.Fold(train.Job{ID: c.ID}, register.Fact{Name: event.FactSubmitted, Time: now, Sequence: 1, Body: &event.Submitted{Spec: s.spec}})
	if err != nil {
		return job, err
	}
	admitted, rejected, err := d.judge(ctx, c.ID, s)
	if err != nil {
		return job, err
	}
	answer := register.Fact{Name: event.FactAdmitted, Time: now, Sequence: 2, Body: admitted}
	if rejected != nil {
		answer.Name, answer.Body = event.FactRejected, rejected
	}
	return register.Fold(job, answer)
}

func (d *handler) verdict(ctx context.Context, id train.JobID, s submission) (verdict fit.Verdict, where fit.Inventory, err error) {
	if len(s.reasons) > 0 {
		return fit.Verdict{Reasons: s.reasons}, where, nil
	}
	if often := d.tooOften(s); len(often) > 0 {
		return fit.Verdict{Reasons: often}, where, nil
	}
	if s, err = d.conducted(ctx, id, s); err != nil {
		return verdict, where, err
	}
	array, err := d.arrayOf(ctx, id, s)
	if err != nil {
		return verdict, where, err
	}
	by := d.identify(s.by)
	by.UID = uidOf(array, s)
	who, where, err := d.around(ctx, id, s.spec, by, s.at)
	if err != nil {
		return verdict, where, err
	}
	where.Admitted = array != nil
	verdict = fit.Check(s.spec, who, where, d.folders.resolve(id, s.spec))
	foreign, err := d.notUploaded(ctx, s)
	verdict.Reasons = append(verdict.Reasons, foreign...)
	return verdict, where, err
}

// notUploaded says that a person names a folder which he has not uploaded himself. The jobs of an array, which
// admission submits, name that of the array.
func (d *handler) notUploaded(ctx context.Context, s submission) ([]train.Reason, error) {
	if s.by == "" || s.role != "web" && s.role != conductor || !train.IsUpload(s.spec.Upload) {
		return nil, nil
	}
	if has, err := d.bus.HasUpload(ctx, s.by, s.spec.Upload); has || err != nil {
		return nil, err
	}
	return []train.Reason{{
		Code: "InvalidUpload", Field: "upload", Message: s.by + " has not uploaded this folder, or so long ago that it is gone", Hint: "`switchyard submit --upload` uploads a folder and names its hash",
	}}, nil
}

// identify returns the identity of a submitter: that of the installation, unless he is known by name.
func (d *handler) identify(by string) fit.Identity {
	who := d.who
	if by != "" {
		who.User, who.Tenant, who.TrustBodies = by, cmp.Or(d.people.tenantOf(by), who.Tenant), false
	}
	return who
}

// around returns what a spec is checked against at a time.
func (d *handler) around(ctx context.Context, id train.JobID, spec train.Spec, by fit.Identity, at time.Time) (who fit.Identity, where fit.Inventory, err error) {
	who, where = by, d.inventory.snapshot()
	who.At, where.ID = at, id
	tenant := cmp.Or(spec.Tenant, who.Tenant)
	where.Bounds, where.Waiting, where.Taken = d.people.of(tenant), d.queue.of(tenant, id), d.queue.taken(id, spec.Array)
	if where.Jobs, err = d.named(ctx, id, spec); err == nil {
		where.Continued, err = d.earlier(ctx, id, spec.Continue)
	}
	return who, where, err
}

// earlier returns the record of a job that another one names; nil if it was never submitted.
func (d *handler) earlier(ctx context.Context, id, other train.JobID) (*train.Job, error) {
	if _, err := train.ParseJobID(string(other)); err != nil || other == id {
		return nil, nil //nolint:nilerr,nilnil // no job has such an id
	}
	e, err := d.record(ctx, other)
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return nil, nil //nolint:nilnil // unknown
	case err != nil:
		return nil, err
	}
	return &e.Value, nil
}

// named returns the states of the jobs that a job is to wait for, itself and unknown ones apart.
func (d *handler) named(ctx context.Context, id train.JobID, spec train.Spec) (map[train.JobID]train.State, error) {
	states := map[train.JobID]train.State{}
	for _, other := range spec.Dependencies() {
		if len(states) > fit.MaxAfter {
			break
		}
		job, err := d.earlier(ctx, id, other.Job)
		if err != nil {
			return nil, err
		}
		if job != nil {
			states[other.Job] = job.State
		}
	}
	return states, nil
}

// fold folds any other fact into the register.
func (d *handler) fold(ctx context.Context, id train.JobID, m bus.Message) error {
	f, ignored, err := d.factOf(ctx, id, m)
	if err != nil || ignored {
		return err
	}
	return d.store(ctx, id, m, func(train.Job) (register.Fact, error) { return f, nil })
}

// factOf returns what the register folds of a message. The wish about a trial is ignored.
func (d *handler) factOf(ctx context.Context, id train.JobID, m bus.Message) (f register.Fact, ignored bool, err error) {
	kind, body, err := readFact(m)
	if err != nil {
		return f, false, err
	}
	if kind.Fact == event.FactWanted {
		experiment, err := d.experimentOf(ctx, id)
		if err != nil {
			return f, false, err
		}
		if experiment != "" {
			d.log.Warn("a wish is ignored: the job is a trial, and its experiment decides when it runs", "job", id, "experiment", experiment)
			return f, true, nil
		}
	}
	f = register.Fact{Name: kind.Fact, Time: m.Time, Sequence: m.Sequence, Body: body}
	if kind.Asked() {
		f.Time = m.Stored // a user's clock must not order facts
	}
	return f, false, nil
}

// readFact reads a fact other than a submission.
func readFact(m bus.Message) (event.Kind, any, error) {
	kind, known := event.Find(m.Parsed)
	if !known {
		return kind, nil, fmt.Errorf("%w: UnknownFact: %s", bus.ErrPoison, m.Subject)
	}
	if !kind.Asked() && m.Source != kind.Publisher {
		return kind, nil, fmt.Errorf("%w: WrongPublisher: %s comes from %.80q, but only %s may publish it", bus.ErrPoison,
			m.Subject, m.Source, kind.Publisher)
	}
	body, err := event.DecodeBody(kind, m.Data)
	if err != nil {
		return kind, nil, fmt.Errorf("%w: InvalidBody: %w", bus.ErrPoison, err)
	}
	if kind.Asked() {
		_, err = bus.Asked(m, body)
	}
	return kind, body, err
}

// store folds what fact makes of the record, by compare-and-swap.
func (d *handler) store(ctx context.Context, id train.JobID, m bus.Message, fact func(train.Job) (register.Fact, error)) error {
	for {
		err := d.storeOnce(ctx, id, m, fact)
		if !errors.Is(err, bus.ErrConflict) {
			return err
		}
		d.records.forget(id)
	}
}

// storeOnce tries one compare-and-swap.
func (d *handler) storeOnce(ctx context.Context, id train.JobID, m bus.Message, fact func(train.Job) (register.Fact, error)) error {
	_, remembered := d.records.find(id)
	e, err := d.record(ctx, id)
	if errors.Is(err, bus.ErrNotFound) {
		e, err = d.refold(ctx, id, m.Sequence)
	}
	if errors.Is(err, bus.ErrNotFound) {
		return fmt.Errorf("%w: UnknownJob: %s about %s, which was never submitted", bus.ErrPoison, m.Parsed.Fact, id)
	}
	if err != nil {
		return err
	}
	f, err := fact(e.Value)
	if err != nil {
		return err
	}
	next, err := d.foldSealed(e.Value, f)
	switch {
	case errors.Is(err, register.ErrIllegal) && remembered:
		return fmt.Errorf("look again: %w", bus.ErrConflict)
	case errors.Is(err, register.ErrIllegal):
		d.meters.illegal.WithLabelValues(f.Name).Inc()
		d.log.Debug("fact changes nothing", "job", id, "fact", f.Name, "sequence", f.Sequence, "reason", err)
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", bus.ErrPoison, err)
	case next.LastSequence == e.Value.LastSequence:
		return nil
	}
	e.Revision, err = d.jobs.Swap(ctx, string(id), next, e.Revision)
	if err != nil {
		d.records.forget(id)
		return err
	}
	e.Value = next
	d.keep(e)
	d.count(f, next)
	return nil
}

// count counts a fact that was folded into a record.
func (d *handler) count(f register.Fact, job train.Job) {
	d.meters.folded.WithLabelValues(f.Name).Inc()
	if f.Name == event.FactAdmitted {
		d.meters.admitted.Inc()
		d.meters.latency.Observe(max(f.Time.Sub(job.SubmittedAt), 0).Seconds())
	}
	d.meters.happened(f, job)
}

// record returns the newest known record; ErrNotFound if the job was never submitted.
func (d *handler) record(ctx context.Context, id train.JobID) (bus.Entry[train.Job], error) {
	if e, known := d.records.find(id); known {
		return e, nil
	}
	e, err := d.jobs.Get(ctx, string(id))
	if err != nil {
		return e, err
	}
	d.records.put(e)
	return e, nil
}

// experimentOf returns the experiment whose trial a job is, or "".
func (d *handler) experimentOf(ctx context.Context, id train.JobID) (string, error) {
	var err error
	experiment, is := contract.ExperimentOf(id, func(experiment string) *contract.Trials {
		var e bus.Entry[contract.Trials]
		if e, err = d.experiments.Get(ctx, experiment); err != nil {
			return nil
		}
		return &e.Value
	})
	if err != nil && !errors.Is(err, bus.ErrNotFound) && !errors.Is(err, bus.ErrPoison) {
		return "", err
	}
	if !is {
		return "", nil
	}
	return experiment, nil
}

func (d *handler) keep(e bus.Entry[train.Job]) {
	d.records.put(e)
	d.queue.observe(bus.Entry[*train.Job]{Key: e.Key, Value: &e.Value, Revision: e.Revision}, false)
}
