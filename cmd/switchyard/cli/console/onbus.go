package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/audit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/rehearse"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/index"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// onBus reads what it is asked for into an index of its own.
type onBus struct {
	bus *bus.Bus
	now func() time.Time
}

// OnBus returns the installation of a bus.
func OnBus(b *bus.Bus, now func() time.Time) Yard { return onBus{b, now} }

func (y onBus) Jobs(ctx context.Context, q view.Query) (view.Page, error) {
	x := index.New()
	if err := Load(ctx, y.bus, x.Plans, x.Jobs, x.Accounts, x.Tunings, x.Attempts, x.Reports, x.Experiments); err != nil {
		return view.Page{}, err
	}
	q.Limit, q.After = 0, ""
	return view.Jobs(x, q, y.now())
}

func (y onBus) Job(ctx context.Context, ref string, unknown int) (view.Detail, error) {
	x := index.New()
	job, whole, err := findJob(ctx, y.bus, x, ref, unknown)
	if err != nil {
		return view.Detail{}, err
	}
	id := string(job.ID)
	if err := Load(ctx, y.bus, x.Plans, x.Tunings); err != nil {
		return view.Detail{}, err
	}
	mine, beside := view.Neighbours(x.Plan(), job.ID)
	for _, a := range beside {
		if !whole {
			err = errors.Join(err, LoadKeys(ctx, y.bus, x.Jobs, string(a.Job)))
		}
	}
	if len(beside) > 0 {
		err = errors.Join(err, Load(ctx, y.bus, x.Met), LoadKeys(ctx, y.bus, x.Nodes, string(mine.Places()[0].Node)))
	}
	err = errors.Join(
		err, LoadKeys(ctx, y.bus, x.Attempts, id), LoadKeys(ctx, y.bus, x.Reports, id+".*"), LoadKeys(ctx, y.bus, x.Models, id),
		LoadKeys(ctx, y.bus, x.Accounts, contract.AccountKey(job.ID)), LoadKeys(ctx, y.bus, x.Courses, contract.EnergyProgressKey(job.ID)),
	)
	if experiment, _, is := contract.SplitTrialJob(id); is {
		err = errors.Join(err, LoadKeys(ctx, y.bus, x.Experiments, experiment))
	}
	if err != nil {
		return view.Detail{}, err
	}
	d := view.Describe(x, job, y.now())
	d.Unsearched = !whole && view.MayBeContinued(job)
	err = y.bus.Stored(ctx, event.StreamJobs, d.FactSubjects(), time.Time{}, func(m bus.Message) { d.Fact(m.Parsed.Fact, m.Data) })
	return d, err
}

func (y onBus) Find(ctx context.Context, ref string, unknown int) (train.Job, error) {
	return FindJob(ctx, y.bus, ref, unknown)
}

func (y onBus) Standing(ctx context.Context, id train.JobID) (view.Standing, error) {
	job, err := y.Find(ctx, string(id), exit.Failed)
	if err != nil {
		return view.Standing{}, err
	}
	x := index.New()
	if err := errors.Join(Load(ctx, y.bus, x.Plans), LoadKeys(ctx, y.bus, x.Attempts, string(id))); err != nil {
		return view.Standing{}, err
	}
	s := view.Stand(x, job)
	if s.Home == "" && job.Attempt > 0 {
		started, _, err := LastIfThere[event.Started](ctx, y.bus, event.StreamJobs, event.JobSubject(id, event.FactStarted))
		if err != nil {
			return s, err
		}
		s.Home = view.HomeOf(started)
	}
	return s, nil
}

func (y onBus) Follow(ctx context.Context, ids []train.JobID, f func(train.Job) bool) error {
	kv, err := OpenBucket(ctx, y.bus, contract.Jobs)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	keys, more := train.Words(ids), true
	return kv.Watch(ctx, func(e bus.Entry[train.Job], deleted bool) {
		if !more || deleted || !slices.Contains(keys, e.Key) {
			return
		}
		if more = f(e.Value); !more {
			stop()
		}
	}, nil, filters(keys)...)
}

// filters returns patterns for keys. A long list of subjects costs the server more than messages that nobody needs.
func filters(keys []string) []string {
	const most = 50
	if len(keys) > most {
		return nil
	}
	return keys
}

func (y onBus) Records(ctx context.Context, ids []train.JobID) ([]*train.Job, error) {
	x, keys := index.New(), train.Words(ids)
	if len(ids) == 0 {
		return []*train.Job{}, nil
	}
	err := LoadKeys(ctx, y.bus, x.Jobs, filters(keys)...)
	return view.Pick(x, keys).Jobs, err
}

func (y onBus) Cluster(ctx context.Context) ([]*view.Node, error) {
	x := index.New()
	if err := Load(ctx, y.bus, x.Nodes, x.Attempts, x.Conditions, x.Eligibility, x.Power, x.Plans); err != nil {
		return nil, err
	}
	var running []string
	for _, a := range x.Attempts.All() {
		if a.Live() {
			running = append(running, string(a.Job))
		}
	}
	if len(running) > 0 {
		accounts := make([]string, len(running))
		for i, id := range running {
			accounts[i] = contract.AccountKey(train.JobID(id))
		}
		err := errors.Join(LoadKeys(ctx, y.bus, x.Jobs, filters(running)...), LoadKeys(ctx, y.bus, x.Accounts, filters(accounts)...))
		if err != nil {
			return nil, err
		}
	}
	return view.Nodes(x, view.Query{}, y.now()).Items, nil
}

func (y onBus) Nodes(ctx context.Context) ([]*train.Node, error) {
	x := index.New()
	err := Load(ctx, y.bus, x.Nodes)
	return view.List(x.Nodes, view.Query{}).Items, err
}

func (y onBus) Experiments(ctx context.Context) ([]view.ExperimentLine, error) {
	records, err := ListBucket(ctx, y.bus, contract.Experiments)
	return view.Experiments(records), err
}

func (y onBus) Experiment(ctx context.Context, id string, unknown int) (contract.ExperimentRecord, error) {
	r, found, err := GetIfThere(ctx, y.bus, contract.Experiments, id)
	if err != nil || found {
		return r, err
	}
	refused, found, err := LastIfThere[event.Rejected](ctx, y.bus, event.StreamTune, event.TuneSubject(id, event.FactRejected))
	switch {
	case err != nil:
	case found:
		err = exit.Usagef("experiment %s rejected:\n  %s", id, refused.Message)
	default:
		err = noExperiment(id, unknown)
	}
	return r, err
}

func (y onBus) Terminal(ctx context.Context, node train.NodeID, r rpc.TerminalRequest) (Terminal, error) {
	p, err := bus.Dial(ctx, y.bus, rpc.TerminalSubject(node), r)
	if err != nil {
		return nil, err // no interface with a pipe that is nil
	}
	return p, nil
}

func (y onBus) Rehearse(ctx context.Context, c rpc.Candidate) (rpc.Rehearsal, error) {
	r, err := rehearse.Ask(ctx, y.bus, c)
	if errors.Is(err, bus.ErrAway) {
		err = exit.Errorf(exit.Unreachable, "start the services: `switchyard up`", "%v", err)
	}
	return r, err
}

func (y onBus) Epochs(ctx context.Context, id train.JobID) (all view.Epochs, err error) {
	subject := event.JobSubject(id, event.FactEpochEnded).String()
	err = y.bus.Stored(ctx, event.StreamJobs, []string{subject}, time.Time{}, func(m bus.Message) { all.Add(m.Time, m.Data) })
	return all, err
}

func (y onBus) Groups(ctx context.Context) ([]view.Group, error) {
	records, err := MapBucket(ctx, y.bus, contract.Groups)
	return view.Groups(records), err
}

func (y onBus) GroundTruth(ctx context.Context) (contract.GroundTruth, error) {
	truth, _, err := GetIfThere(ctx, y.bus, contract.Profiles, contract.ProfilesKey)
	return truth, err
}

func (y onBus) Probed(ctx context.Context) (view.Probed, error) {
	lists, err := ListBucket(ctx, y.bus, contract.Probes)
	if err != nil {
		return view.Probed{}, err
	}
	links, err := ListBucket(ctx, y.bus, contract.Links)
	if err != nil {
		return view.Probed{}, err
	}
	judged, found, err := LastIfThere[event.LinksJudged](ctx, y.bus, event.StreamSamples, event.JudgedSubject(0))
	if !found {
		return view.NewProbed(lists, links, nil), err
	}
	return view.NewProbed(lists, links, &judged), err
}

func (y onBus) Ledger(ctx context.Context, from, to time.Time) (view.Ledger, error) {
	x := index.New()
	if err := Load(ctx, y.bus, x.Jobs, x.Accounts); err != nil {
		return view.Ledger{}, err
	}
	groups, err := MapBucket(ctx, y.bus, contract.Groups)
	if err != nil {
		return view.Ledger{}, err
	}
	books, err := MapBucket(ctx, y.bus, contract.Hours, contract.HourPatterns(from, to)...)
	return view.NewLedger(x, books, groups), err
}

func (y onBus) Audit(ctx context.Context, f audit.Filter) ([]contract.AuditEntry, error) {
	return audit.Read(ctx, y.bus, f)
}

func (y onBus) Users(ctx context.Context) ([]*access.Person, error) {
	x := index.New()
	err := Load(ctx, y.bus, x.Users)
	return view.List(x.Users, view.Query{}).Items, err
}

func (y onBus) Tenants(ctx context.Context) ([]*access.Tenant, error) {
	x := index.New()
	err := Load(ctx, y.bus, x.Tenants)
	return view.List(x.Tenants, view.Query{}).Items, err
}

func (y onBus) Log(ctx context.Context, node train.NodeID, job train.JobID, offset int64) (rpc.LogChunk, error) {
	chunk, err := bus.Ask[rpc.LogRequest, rpc.LogChunk](ctx, y.bus, rpc.LogSubject(node), rpc.LogRequest{Job: job, Offset: offset})
	if err != nil && (errors.Is(err, context.DeadlineExceeded) || y.bus.Ready() != nil) {
		err = fmt.Errorf("%w: %w", bus.ErrAway, err)
	}
	return chunk, err
}

func (y onBus) Files(ctx context.Context, node train.NodeID, r rpc.FileRequest) (rpc.FileAnswer, error) {
	return bus.Ask[rpc.FileRequest, rpc.FileAnswer](ctx, y.bus, rpc.FileSubject(node), r)
}

func (y onBus) Publish(ctx context.Context, fact event.Fact) (repeat bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if !fact.Once {
		return false, y.bus.Publish(ctx, fact)
	}
	kind, _ := event.Find(fact.Subject)
	repeat, err = y.bus.PublishOnce(ctx, kind.Stream, fact)
	if errors.Is(err, bus.ErrConflict) {
		return false, exit.Errorf(exit.Failed, "choose another id", "%s %s: another submission has this id, and the first one stands", fact.Subject.Entity, fact.Subject.ID)
	}
	return repeat, err
}

func (y onBus) Upload(ctx context.Context, hash string, archive *os.File) (repeat bool, err error) {
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	stored, err := y.bus.PutUpload(ctx, "", hash, archive)
	return !stored, err
}

// publishTimeout bounds the wait for the bus to store a fact.
const publishTimeout = 10 * time.Second

// Load reads parts of an index. What cannot be decoded is left out, as the service web does.
func Load(ctx context.Context, b *bus.Bus, sources ...index.Source) error {
	for _, s := range sources {
		if s.Stream() != "" {
			if err := b.Newest(ctx, s.Stream(), []string{s.Pattern()}, func(m bus.Message) { _, _ = s.Put(m.Parsed.ID, m.Sequence, m.Data) }); err != nil {
				return err
			}
			continue
		}
		if err := LoadKeys(ctx, b, s, s.Pattern()); err != nil {
			return err
		}
	}
	return nil
}

// LoadKeys reads the keys that match the patterns into a part of an index.
func LoadKeys(ctx context.Context, b *bus.Bus, s index.Source, patterns ...string) error {
	entries, err := listEntries(ctx, b, contract.Bucket[json.RawMessage](s.Bucket()), patterns)
	for _, e := range entries {
		_, _ = s.Put(e.Key, e.Revision, e.Value)
	}
	return err
}

// FindJob is the Find of a bus.
func FindJob(ctx context.Context, b *bus.Bus, ref string, unknown int) (train.Job, error) {
	job, _, err := findJob(ctx, b, index.New(), ref, unknown)
	return job, err
}

// findJob reads the record that an id names or, for other references, all jobs into x; whole says that it has done so.
func findJob(ctx context.Context, b *bus.Bus, x *index.Index, ref string, unknown int) (job train.Job, whole bool, err error) {
	id, notID := train.ParseJobID(ref)
	if notID == nil {
		if err := LoadKeys(ctx, b, x.Jobs, string(id)); err != nil {
			return job, false, err
		}
		if found := x.Jobs.Get(string(id)); found != nil {
			return *found, false, nil
		}
	}
	if err := Load(ctx, b, x.Jobs); err != nil {
		return job, false, err
	}
	found, err := view.Find(x, ref, installation.CurrentUser())
	if err == nil {
		return *found, true, nil
	}
	missing, is := errors.AsType[*view.UnknownJobError](err)
	if !is {
		return job, true, exit.Errorf(exit.Failed, "give more of the id", "%v", err)
	}
	if notID == nil {
		body, found, err := LastIfThere[event.Submitted](ctx, b, event.StreamJobs, event.JobSubject(id, event.FactSubmitted))
		if err == nil && found {
			return view.Unread(id, body.Spec), true, nil
		}
	}
	return job, true, exit.Errorf(unknown, render.EscapeText(missing.Fix), "%v", missing)
}
