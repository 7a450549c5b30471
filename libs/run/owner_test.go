package run

import (
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestAnOwnerIsTakenForGoneOnceHeIsSilent(t *testing.T) {
	const refresh = 10 * time.Second
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(after time.Duration) time.Time { return start.Add(after) }
	for name, c := range map[string]struct {
		revision uint64
		seenAt   time.Time
		now      time.Time
		want     bool
	}{
		"he wrote just now":                       {7, start, start, false},
		"he is silent, but not for long":          {7, start, at(OwnerLost - time.Second), false},
		"he is silent for good":                   {7, start, at(OwnerLost + time.Second), true},
		"he wrote again":                          {8, at(OwnerLost), at(OwnerLost + time.Second), false},
		"his record is old, and stays as it is":   {7, at(-time.Hour), at(3 * refresh), true},
		"his record is old, for how long we know": {7, at(-time.Hour), at(2 * refresh), false},
		"his clock is slow, but he writes":        {8, at(-time.Hour), at(3 * refresh), false},
		"his clock is fast, and he is silent":     {7, at(time.Hour), at(3 * refresh), true},
	} {
		r := rival{revision: 7, since: start}
		if got := r.gone(c.revision, c.seenAt, c.now, refresh); got != c.want {
			t.Errorf("%s: gone is %t, want %t", name, got, c.want)
		}
	}
}

func TestADataFolderStandsByUntilTheOtherOneIsSilent(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	records, err := bus.OpenKV(ctx, bustest.Connect(t, bustest.Start(t), "executor"), contract.Executors)
	if err != nil {
		t.Fatal(err)
	}
	o := Ownership[contract.ExecutorOwner]{
		Records: records, Key: "n1", Mine: train.Owner{ID: "mine"}, Refresh: time.Millisecond,
		Of: func(r contract.ExecutorOwner) (train.Owner, time.Time) { return r.Owner, r.SeenAt },
	}
	var stoodBy []train.Owner
	await := func(want string) {
		t.Helper()
		e, err := o.Await(ctx, func(other train.Owner) { stoodBy = append(stoodBy, other) })
		if err != nil || e.Value.Owner.ID != want {
			t.Fatalf("%+v, error %v, want the record of %q", e, err, want)
		}
	}
	put := func(owner train.Owner) {
		t.Helper()
		if err := records.Put(ctx, "n1", contract.ExecutorOwner{Machine: "n1", Owner: owner, SeenAt: time.Now().Add(-time.Hour).UTC()}); err != nil {
			t.Fatal(err)
		}
	}
	await("")
	put(o.Mine)
	await("mine")
	if len(stoodBy) > 0 {
		t.Errorf("it stood by for %v, though the record was its own", stoodBy)
	}
	put(train.Owner{ID: "other", Place: "elsewhere:/data"})
	await("other")
	if len(stoodBy) != 1 || stoodBy[0].Place != "elsewhere:/data" {
		t.Errorf("it stood by for %v, want once for the other owner", stoodBy)
	}
}

func TestADataFolderKeepsItsOwner(t *testing.T) {
	c := Common{DataDir: t.TempDir()}
	first, err := OwnerOf(c)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := OwnerOf(c); err != nil || again != first {
		t.Errorf("%v after %v, error %v", again, first, err)
	}
	if other, err := OwnerOf(Common{DataDir: t.TempDir()}); err != nil || other.ID == first.ID {
		t.Errorf("two folders have the owner %v, error %v", other, err)
	}
}
