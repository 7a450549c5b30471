package tick_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/tick"
)

func TestWorkIsRepeatedUntilTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		var every, after []time.Duration
		for now := range tick.Every(ctx, time.Second) {
			every = append(every, now.Sub(begun))
		}
		if diff := cmp.Diff([]time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}, every); diff != "" {
			t.Errorf("Every (-want +got):\n%s", diff)
		}
		begun = time.Now()
		for now := range tick.After(t.Context(), time.Second) {
			if after = append(after, now.Sub(begun)); len(after) == 2 {
				break
			}
		}
		if diff := cmp.Diff([]time.Duration{time.Second, 2 * time.Second}, after); diff != "" {
			t.Errorf("After (-want +got):\n%s", diff)
		}
	})
}

func TestSignalsAddUpToOne(t *testing.T) {
	s := tick.NewSignal()
	s.Send()
	s.Send()
	if <-s; len(s) != 0 {
		t.Error("two signals woke twice")
	}
}

func TestALoopBeginsWhenTheLatchIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ran := tick.NewLatch(), 0
		loop := l.Then(func(context.Context) error { ran++; return nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := loop(ctx); err != nil || ran != 0 {
			t.Errorf("it ran %d times before the latch was open, %v", ran, err)
		}
		time.AfterFunc(time.Second, l.Open)
		if err := loop(t.Context()); err != nil || ran != 1 {
			t.Errorf("it ran %d times, %v", ran, err)
		}
		l.Open()
		if !l.Wait(t.Context()) {
			t.Error("the latch closed again")
		}
	})
}
