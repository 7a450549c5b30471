package run_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/run"
)

func TestOneProcessHoldsALock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "folder", "lock")
	unlock, err := run.Lock(t.Context(), path, func() { t.Error("waits for nobody") })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waited := 0
	second, err := run.Lock(ctx, path, func() { waited++; cancel() })
	if err != nil || waited != 1 || ctx.Err() == nil {
		t.Fatalf("error %v, said %d times that it waits: want once, until the context ends", err, waited)
	}
	second() // it never had it: the first one still does
	said := make(chan struct{})
	third := make(chan error, 1)
	var release func()
	var running conc.WaitGroup
	defer running.Wait()
	running.Go(func() {
		var err error
		release, err = run.Lock(t.Context(), path, func() { close(said) })
		third <- err
	})
	<-said
	unlock()
	if err := <-third; err != nil {
		t.Fatal(err)
	}
	release()
}
