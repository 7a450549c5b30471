package view

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
)

// body is an epoch with metrics of a size in bytes.
func body(t *testing.T, epoch, attempt, bytes int) []byte {
	t.Helper()
	e := event.EpochEnded{Attempt: attempt, EpochsDone: epoch, Metrics: map[string]float64{}}
	for i := range bytes / 100 {
		e.Metrics[fmt.Sprint(strings.Repeat("m", 98), i%10, i/10)] = 1
	}
	data, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestAnAnswerHasSoManyEpochs(t *testing.T) {
	for _, c := range []struct{ epochs, bytes, fewest int }{{3, 0, 3}, {mostEpochs, 0, mostEpochs}, {9000, 0, mostEpochs / 2}, {700, 8000, 60}} {
		all := AllEpochs()
		for i := range c.epochs {
			all.Add(time.Time{}, body(t, i+1, 1, c.bytes))
		}
		got := all.Epochs.Epochs
		data, err := json.Marshal(all.Epochs)
		if err != nil || len(data) > mostEpochBytes*5/4 || len(got) < c.fewest || len(got) > mostEpochs || all.Thinned != (len(got) < c.epochs) {
			t.Errorf("%d epochs of %d bytes: %d in %d bytes, thinned %v, error %v", c.epochs, c.bytes, len(got), len(data), all.Thinned, err)
		}
		if last := got[len(got)-1].EpochsDone; last != c.epochs {
			t.Errorf("the last of %d epochs is %d", c.epochs, last)
		}
	}
}

// Pages have every epoch once, as it was last: a second attempt began again at the epoch 1,500.
func TestPagesHaveAllEpochs(t *testing.T) {
	const epochs, again = 4500, 1500
	for after, seen := 0, 0; ; {
		page := EpochsAfter(after)
		for i := range epochs - 500 {
			page.Add(time.Time{}, body(t, i+1, 1, 0))
		}
		for i := again; i <= epochs; i++ {
			page.Add(time.Time{}, body(t, i, 2, i%700))
		}
		for _, e := range page.Epochs.Epochs {
			seen++
			if want := 1 + min(seen/again, 1); e.EpochsDone != seen || e.Attempt != want {
				t.Fatalf("epoch %d of attempt %d, want %d of %d", e.EpochsDone, e.Attempt, seen, want)
			}
		}
		if len(page.Epochs.Epochs) > mostEpochs || page.Thinned {
			t.Errorf("%d epochs on a page", len(page.Epochs.Epochs))
		}
		if after = page.Next; after == 0 {
			if seen != epochs {
				t.Errorf("%d epochs, want %d", seen, epochs)
			}
			return
		}
	}
}
