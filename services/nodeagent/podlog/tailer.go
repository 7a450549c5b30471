// Package podlog copies what the containers of jobs write into the jobs' logs, which are bounded and outlive the
// pods, and reads epochs in the output of jobs whose code does not report them. It finds pods by the names of the
// folders into which the kubelet writes their logs, and uses no API, so logs continue while the API server is
// unreachable.
package podlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/joblog"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Config says where logs come from and go to.
type Config struct {
	// Root is the kubelet's folder of pods' logs.
	Root string
	// Layout has the folders of jobs; LimitBytes bounds the log in each.
	Layout     installation.Layout
	LimitBytes int64
	// Attempts returns the newest attempts of all jobs.
	Attempts func() []train.Attempt
	// Node is this node; Receiver gets the epochs of the attempts whose home it is.
	Node     train.NodeID
	Receiver Receiver
	Log      *slog.Logger
}

// Tailer copies logs.
type Tailer struct {
	config Config

	mu         sync.Mutex
	jobs       map[train.JobID]*jobLog
	lastFaults map[string]string
	// readOut are the attempts that were reported as read to their end.
	readOut map[train.JobID]int
}

// New makes a tailer.
func New(c Config) *Tailer {
	return &Tailer{config: c, jobs: map[train.JobID]*jobLog{}, lastFaults: map[string]string{}, readOut: map[train.JobID]int{}}
}

// state is what is kept of a job's log over restarts: its length when all sources had been read up to their marks.
type state struct {
	Written int64 `json:"written"`
	// Begun is the newest attempt whose output has begun.
	Begun int `json:"begun"`
	// Marks are by the pod's uid and the name of the log in its folder, and so are the states of the epoch readers.
	Marks  map[string]mark        `json:"marks"`
	Epochs map[string]readerState `json:"heard,omitempty"`
}

// jobLog is the log of a job that has pods here.
type jobLog struct {
	dir     string
	log     *joblog.Log
	kept    state
	sources map[string]*source
}

// Answer reads a piece of a job's log; over is set if the job has ended.
func (t *Tailer) Answer(r rpc.LogRequest, over bool) (rpc.LogChunk, error) {
	return joblog.Answer(t.config.Layout, r, t.config.LimitBytes, over)
}

// Run copies until ctx ends.
func (t *Tailer) Run(ctx context.Context) error {
	const every = 250 * time.Millisecond
	for range tick.Every(ctx, every) {
		t.Poll(ctx)
	}
	t.close()
	return nil
}

// Poll copies everything written so far, and delivers the epochs in it.
func (t *Tailer) Poll(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := slugs(t.config.Attempts())
	entries, err := os.ReadDir(t.config.Root)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // the kubelet makes it with the first pod
	}
	found := faults{}
	defer func() { t.logChanges(found) }()
	if err != nil {
		found.add(t.config.Root, err)
		return // nothing counts as gone because of that
	}
	there := map[string]bool{}
	for _, e := range entries {
		p, ok := parseFolder(e.Name(), known)
		if !ok {
			continue
		}
		there[p.folder] = true
		for _, path := range logFiles(filepath.Join(t.config.Root, p.folder)) {
			found.add(string(p.job), t.find(p, path, known[train.PodSlug(p.job)]))
		}
	}
	for job, l := range t.jobs {
		found.add(string(job), t.copy(ctx, job, l, there, known[train.PodSlug(job)]))
	}
	t.deliverReadOut(ctx, known, found)
}

// wantsEpochs reports whether the epochs in an attempt's output are wanted: until its outcome is decided, by the
// agent of its first node.
func (t *Tailer) wantsEpochs(a train.Attempt) bool {
	return a.LogFormat != "" && a.Home() == t.config.Node && a.Outcome == train.OutcomeNone
}

// deliverReadOut reports the ended attempts whose output was delivered completely.
func (t *Tailer) deliverReadOut(ctx context.Context, known map[string]train.Attempt, found faults) {
	for _, a := range known {
		switch {
		case !t.wantsEpochs(a):
			delete(t.readOut, a.Job)
		case a.Live() || a.StartedAt.IsZero() || found[string(a.Job)] != nil || t.readOut[a.Job] == a.Number:
		default:
			err := t.config.Receiver.ReadOut(ctx, a)
			found.add(string(a.Job), err)
			if err == nil {
				t.readOut[a.Job] = a.Number
			}
		}
	}
}

// find adds a log that was not known.
func (t *Tailer) find(p pod, path string, newest train.Attempt) error {
	l := t.jobs[p.job]
	if l == nil {
		var err error
		if l, err = openJob(t.config.Layout.Job(p.job), t.config.Layout.Output(p.job), t.config.LimitBytes); err != nil {
			return err
		}
		t.jobs[p.job] = l
	}
	key := p.uid + strings.TrimPrefix(path, filepath.Join(t.config.Root, p.folder))
	if l.sources[key] != nil {
		return nil
	}
	prefix := ""
	if p.rank > 0 {
		prefix = fmt.Sprintf("[%d] ", p.rank)
	}
	s := &source{pod: p, path: path, at: l.kept.Marks[key]}
	to := io.Writer(l.log)
	if p.rank == newest.FirstWorker() && p.attempt == newest.Number && t.wantsEpochs(newest) {
		var err error
		if s.epochs, err = newEpochReader(newest.LogFormat, l.kept.Epochs[key]); err != nil {
			return err
		}
		to = io.MultiWriter(l.log, s.epochs)
	}
	s.out, s.errors = joblog.NewLines(to, prefix), joblog.NewLines(to, prefix)
	l.sources[key] = s
	return nil
}

// copy copies what is new in the logs of a job and delivers its epochs, closes the logs that are gone, and stores how
// far it has got.
func (t *Tailer) copy(ctx context.Context, job train.JobID, l *jobLog, there map[string]bool, newest train.Attempt) error {
	var errs []error
	delivered := 0
	for _, key := range slices.Sorted(maps.Keys(l.sources)) {
		s := l.sources[key]
		// A removed file is still open: what was written between the last poll and its removal is there.
		errs = append(errs, s.read(func(first line) { l.begin(s.pod, first.at, newest) }))
		gone := !there[s.pod.folder]
		if gone || s.pod.attempt < newest.Number || !newest.Live() {
			s.finish()
		}
		taken, err := t.deliver(ctx, s, newest)
		delivered += taken
		errs = append(errs, err)
		if gone && err == nil {
			s.close()
			delete(l.sources, key)
		}
	}
	errs = append(errs, l.keep(delivered > 0))
	if len(l.sources) == 0 {
		errs = append(errs, l.log.Close())
		delete(t.jobs, job)
	}
	return errors.Join(errs...)
}

// deliver passes on the epochs found in a log. Once the outcome of its attempt is decided, they are too late.
func (t *Tailer) deliver(ctx context.Context, s *source, newest train.Attempt) (taken int, err error) {
	if s.epochs == nil || len(s.epochs.pending) == 0 {
		return 0, nil
	}
	if s.pod.attempt == newest.Number && t.wantsEpochs(newest) {
		return s.epochs.deliver(ctx, t.config.Receiver, newest)
	}
	t.config.Log.Warn("epochs were read too late", "job", s.pod.job, "attempt", s.pod.attempt, "first", s.epochs.pending[0].Epoch.Epoch, "epochs", len(s.epochs.pending))
	taken, s.epochs.pending = len(s.epochs.pending), nil
	return taken, nil
}

// openJob continues the log of a job. What was copied after the state was stored is removed, because it is copied
// again.
func openJob(dir, output string, limit int64) (*jobLog, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of a job: %w", err)
	}
	l := &jobLog{dir: dir, sources: map[string]*source{}, kept: state{Marks: map[string]mark{}}}
	data, err := os.ReadFile(l.statePath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read how far logs were copied: %w", err)
	}
	known := err == nil && json.Unmarshal(data, &l.kept) == nil && l.kept.Marks != nil
	if l.log, err = joblog.Open(output, limit); err != nil {
		return nil, err
	}
	if known {
		err = l.log.Rewind(l.kept.Written)
	} else {
		err = l.store(state{Written: l.log.Written(), Marks: map[string]mark{}})
	}
	if err != nil {
		return nil, errors.Join(err, l.log.Close())
	}
	return l, nil
}

func (l *jobLog) statePath() string { return filepath.Join(l.dir, "pods.json") }

// begin writes the line that begins the output of an attempt, with the time of its first line.
func (l *jobLog) begin(p pod, at string, newest train.Attempt) {
	if p.attempt <= l.kept.Begun {
		return
	}
	l.kept.Begun = p.attempt
	a := train.Attempt{Job: p.job, Number: p.attempt}
	if p.attempt == newest.Number {
		a = newest
	}
	if t, err := time.Parse(time.RFC3339Nano, at); err == nil {
		at = t.UTC().Format(time.RFC3339)
	}
	l.log.Begin(joblog.Header(a, at))
}

// keep stores how far everything was copied, at a moment when no line is half copied. delivered says that pending
// epochs were delivered.
func (l *jobLog) keep(delivered bool) error {
	fresh := state{Written: l.log.Written(), Begun: l.kept.Begun, Marks: map[string]mark{}, Epochs: map[string]readerState{}}
	changed := delivered || len(l.kept.Marks) != len(l.sources) || l.kept.Written != fresh.Written
	for key, s := range l.sources {
		m, ok := s.settled()
		if !ok {
			return nil
		}
		changed = changed || l.kept.Marks[key] != m
		fresh.Marks[key] = m
		if s.epochs != nil {
			state, err := s.epochs.state()
			if err != nil {
				return fmt.Errorf("encode the epochs read in %s: %w", key, err)
			}
			fresh.Epochs[key] = state
		}
	}
	if !changed {
		return nil
	}
	return l.store(fresh)
}

// store replaces the state atomically.
func (l *jobLog) store(fresh state) error {
	data, err := json.Marshal(fresh)
	if err != nil {
		return fmt.Errorf("encode how far logs were copied: %w", err)
	}
	path := l.statePath()
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("keep how far logs were copied: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("keep how far logs were copied: %w", err)
	}
	l.kept = fresh
	return nil
}

func (t *Tailer) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for job, l := range t.jobs {
		for _, s := range l.sources {
			s.close()
		}
		if err := l.log.Close(); err != nil {
			t.config.Log.Warn("log of a job not complete", "job", job, "error", err)
		}
	}
	t.jobs = map[train.JobID]*jobLog{}
}

// faults are the errors of a poll: of jobs by their ids, of the folder by its path.
type faults map[string]error

func (t faults) add(about string, err error) {
	if err != nil {
		t[about] = errors.Join(t[about], err)
	}
}

// logChanges logs faults when they change, not at every poll.
func (t *Tailer) logChanges(now faults) {
	lastFaults := make(map[string]string, len(now))
	for about, err := range now {
		lastFaults[about] = err.Error()
		if t.lastFaults[about] != lastFaults[about] {
			t.config.Log.Warn("logs of pods not copied", "about", about, "error", err)
		}
	}
	t.lastFaults = lastFaults
}
