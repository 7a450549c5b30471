// Package podlog copies what the containers of jobs write into the jobs' logs, which are bounded and outlive the pods, and reads epochs in the output of jobs
// whose code does not tell of them. It finds pods by the names of the folders into which the kubelet has their logs written, and asks no API: logs go on while
// the API server is away.
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

	"github.com/switchyard-dl/switchyard/libs/joblog"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Config says where logs come from and go to.
type Config struct {
	// Root is the kubelet's folder of pods' logs, Namespace the one in which jobs' pods are.
	Root, Namespace string
	// Jobs is the folder that holds a folder for each job; LimitBytes bounds the log in it.
	Jobs       string
	LimitBytes int64
	// Attempts are the newest attempts of all jobs.
	Attempts func() []train.Attempt
	// Node is this one, whose Listener is told of the attempts that are at home here.
	Node     train.NodeID
	Listener Listener
	Log      *slog.Logger
}

// Tailer copies logs.
type Tailer struct {
	config Config

	mu   sync.Mutex
	jobs map[train.JobID]*jobLog
	said map[string]string
	// readOut are the attempts that were told to have been read to their end.
	readOut map[train.JobID]int
}

// New makes a tailer.
func New(c Config) *Tailer {
	return &Tailer{config: c, jobs: map[train.JobID]*jobLog{}, said: map[string]string{}, readOut: map[train.JobID]int{}}
}

// state is what is kept of a job's log over restarts: how long it was when all sources had been read up to their marks.
type state struct {
	Written int64 `json:"written"`
	// Begun is the newest attempt whose output has begun.
	Begun int `json:"begun"`
	// Marks are by the pod's uid and the name of the log in its folder, and so is what was heard up to there.
	Marks map[string]mark    `json:"marks"`
	Heard map[string]hearing `json:"heard,omitempty"`
}

// jobLog is the log of a job that has pods here.
type jobLog struct {
	dir     string
	log     *joblog.Log
	kept    state
	sources map[string]*source
}

// Output is the log of a job.
func (t *Tailer) Output(job train.JobID) string {
	return filepath.Join(t.config.Jobs, string(job), "output.log")
}

// Read reads a piece of a job's log.
func (t *Tailer) Read(r train.LogRequest) (train.LogChunk, error) {
	return joblog.Read(t.Output(r.Job), r, t.config.LimitBytes)
}

// Run copies until ctx ends.
func (t *Tailer) Run(ctx context.Context) error {
	const every = 250 * time.Millisecond
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		t.Poll(ctx)
		select {
		case <-ctx.Done():
			t.close()
			return nil
		case <-ticker.C:
		}
	}
}

// Poll copies all that has been written so far, and tells what was heard in it.
func (t *Tailer) Poll(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := slugs(t.config.Attempts())
	entries, err := os.ReadDir(t.config.Root)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // the kubelet makes it with the first pod
	}
	found := troubles{}
	defer func() { t.say(found) }()
	if err != nil {
		found.add(t.config.Root, err)
		return // nothing of it is gone for that
	}
	there := map[string]bool{}
	for _, e := range entries {
		p, ok := parseFolder(e.Name(), t.config.Namespace, known)
		if !ok {
			continue
		}
		there[p.folder] = true
		for _, path := range logFiles(filepath.Join(t.config.Root, p.folder)) {
			found.add(string(p.job), t.find(p, path, known[slug(p.job)]))
		}
	}
	for job, l := range t.jobs {
		found.add(string(job), t.copy(ctx, job, l, there, known[slug(job)]))
	}
	t.tellReadOut(ctx, known, found)
}

// listens says whether somebody wants to know what an attempt tells in its output: until its outcome is decided, the agent of its first node.
func (t *Tailer) listens(a train.Attempt) bool {
	return a.LogFormat != "" && a.Home() == t.config.Node && a.Outcome == train.OutcomeNone
}

// tellReadOut tells of the attempts that have ended, once nothing of their output is left to be told.
func (t *Tailer) tellReadOut(ctx context.Context, known map[string]train.Attempt, found troubles) {
	for _, a := range known {
		switch {
		case !t.listens(a):
			delete(t.readOut, a.Job)
		case a.Live() || a.StartedAt.IsZero() || found[string(a.Job)] != nil || t.readOut[a.Job] == a.Number:
		default:
			err := t.config.Listener.ReadOut(ctx, a)
			found.add(string(a.Job), err)
			if err == nil {
				t.readOut[a.Job] = a.Number
			}
		}
	}
}

// find takes up a log that was not known.
func (t *Tailer) find(p pod, path string, newest train.Attempt) error {
	l := t.jobs[p.job]
	if l == nil {
		var err error
		if l, err = openJob(filepath.Dir(t.Output(p.job)), t.Output(p.job), t.config.LimitBytes); err != nil {
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
	if p.rank == 0 && p.attempt == newest.Number && t.listens(newest) {
		s.ear = newEar(l.kept.Heard[key])
		to = io.MultiWriter(l.log, s.ear)
	}
	s.out, s.errors = joblog.NewLines(to, prefix), joblog.NewLines(to, prefix)
	l.sources[key] = s
	return nil
}

// copy copies what is new in the logs of a job and tells what was heard, lets go of those that are gone, and keeps how far it has come.
func (t *Tailer) copy(ctx context.Context, job train.JobID, l *jobLog, there map[string]bool, newest train.Attempt) error {
	var errs []error
	told := 0
	for _, key := range slices.Sorted(maps.Keys(l.sources)) {
		s := l.sources[key]
		// A file that was removed is open still: what was written between the last look and its removal is there.
		errs = append(errs, s.read(func(first line) { l.begin(s.pod, first.at, newest) }))
		gone := !there[s.pod.folder]
		if gone || s.pod.attempt < newest.Number || !newest.Live() {
			s.finish()
		}
		taken, err := t.tell(ctx, s, newest)
		told += taken
		errs = append(errs, err)
		if gone && err == nil {
			s.close()
			delete(l.sources, key)
		}
	}
	errs = append(errs, l.keep(told > 0))
	if len(l.sources) == 0 {
		errs = append(errs, l.log.Close())
		delete(t.jobs, job)
	}
	return errors.Join(errs...)
}

// tell passes on what was heard in a log. Once its attempt is over and decided on, it comes too late.
func (t *Tailer) tell(ctx context.Context, s *source, newest train.Attempt) (taken int, err error) {
	if s.ear == nil || len(s.ear.untold) == 0 {
		return 0, nil
	}
	if s.pod.attempt == newest.Number && t.listens(newest) {
		return s.ear.tell(ctx, t.config.Listener, newest)
	}
	t.config.Log.Warn("epochs were read too late", "job", s.pod.job, "attempt", s.pod.attempt, "first", s.ear.untold[0].Epoch.Epoch, "epochs", len(s.ear.untold))
	taken, s.ear.untold = len(s.ear.untold), nil
	return taken, nil
}

// openJob goes on with the log of a job. What was copied after the state was kept is taken back: it is copied again.
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

// begin writes the line that begins the output of an attempt, with the first of its lines.
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

// keep stores how far everything was copied, at a moment when no line is half copied. told says that it changes what is left to be told.
func (l *jobLog) keep(told bool) error {
	fresh := state{Written: l.log.Written(), Begun: l.kept.Begun, Marks: map[string]mark{}, Heard: map[string]hearing{}}
	changed := told || len(l.kept.Marks) != len(l.sources) || l.kept.Written != fresh.Written
	for key, s := range l.sources {
		m, ok := s.settled()
		if !ok {
			return nil
		}
		changed = changed || l.kept.Marks[key] != m
		fresh.Marks[key] = m
		if s.ear != nil {
			fresh.Heard[key] = s.ear.hearing()
		}
	}
	if !changed {
		return nil
	}
	return l.store(fresh)
}

// store replaces the state in one step.
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
			t.config.Log.Warn("log of a job not whole", "job", job, "error", err)
		}
	}
	t.jobs = map[train.JobID]*jobLog{}
}

// troubles are those of a look: of jobs by their ids, of the folder by its path.
type troubles map[string]error

func (t troubles) add(about string, err error) {
	if err != nil {
		t[about] = errors.Join(t[about], err)
	}
}

// say logs troubles when they change, not at every look.
func (t *Tailer) say(now troubles) {
	said := make(map[string]string, len(now))
	for about, err := range now {
		said[about] = err.Error()
		if t.said[about] != said[about] {
			t.config.Log.Warn("logs of pods not copied", "about", about, "error", err)
		}
	}
	t.said = said
}
