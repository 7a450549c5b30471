package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// identity is what every line of the ledger contains about its process.
type identity struct {
	path     string // no ledger when empty
	eachStep bool
	Job      string `json:"job"`
	Attempt  int    `json:"attempt"`
	PID      int    `json:"pid"`
	Rank     int    `json:"rank"`
	Devices  string `json:"devices"`
}

// ledger records when this process started, finished epochs and ended, in a file that all processes of all jobs may
// share. It is evidence for tests that kill processes: each event is one line, appended in a single write, so that no
// crash leaves part of a line among the others'.
type ledger struct {
	identity
	log    io.Writer
	epochs atomic.Uint64
	steps  atomic.Uint64
	ended  sync.Once
}

func newLedger(who identity, rank int, log io.Writer) *ledger {
	who.PID, who.Rank = os.Getpid(), rank
	return &ledger{identity: who, log: log}
}

func (l *ledger) start(epochs uint64) {
	l.epochs.Store(epochs)
	l.record("start")
}

func (l *ledger) epoch(epochs uint64) {
	l.epochs.Store(epochs)
	l.record("epoch")
}

// step records a step, if each is to be recorded.
func (l *ledger) step(steps uint64) {
	if l.eachStep {
		l.steps.Store(steps)
		l.record("step")
	}
}

// exit records the end once: from the deferred call or the signal, whichever comes first.
func (l *ledger) exit() {
	l.ended.Do(func() { l.record("exit") })
}

func (l *ledger) record(event string) {
	if l.path == "" {
		return
	}
	if err := l.append(event); err != nil {
		fmt.Fprintf(l.log, "ledger: %v\n", err)
	}
}

func (l *ledger) append(event string) error {
	line, err := json.Marshal(struct {
		Event string `json:"event"`
		identity
		Epoch       uint64  `json:"epoch"`
		Step        uint64  `json:"step,omitempty"`
		UnixSeconds float64 `json:"unix_seconds"`
	}{event, l.identity, l.epochs.Load(), l.steps.Load(), float64(time.Now().UnixMicro()) / 1e6})
	if err != nil {
		return err
	}
	file, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}
