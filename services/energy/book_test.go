package energy

import (
	"slices"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestBookNotesWhatWasMissed(t *testing.T) {
	never := func(train.JobID) bool { return false }
	var b Book
	b.add(interval("n1", "b1", 1, cpu(10, 0, 0)), 1, never)
	b.add(interval("n1", "b1", 4, cpu(10, 0, 0)), 2, never) // two never came
	late := interval("n1", "b1", 5, cpu(10, 0, 0))
	late.GapSeconds = 7 // the agent says so itself
	b.add(late, 3, never)
	b.add(interval("n1", "b2", 9, cpu(10, 0, 0)), 4, never) // another agent, three seconds later
	b.add(interval("n1", "b2", 10, cpu(-99, 0, 0)), 5, never)
	if b.Missing != 2 || b.GapSeconds != 2+7+3 || b.Resets != 1 {
		t.Errorf("missing %d, gap %g s, resets %d; want 2, 12 s, 1", b.Missing, b.GapSeconds, b.Resets)
	}
	if want := (Totals{Measured: 40, Unattributed: 40}); b.Totals["cpu"] != want {
		t.Errorf("%+v, want %+v", b.Totals["cpu"], want)
	}
}

func TestMemoryIsSharedByProcessorTime(t *testing.T) {
	var b Book
	meters := []event.Meter{{Component: "dram", Method: "rapl", Energy: 100, Busy: 2}}
	b.add(interval("n1", "b", 1, meters, event.Use{Job: "a", Component: "cpu", Work: 1}), 1, func(train.JobID) bool { return false })
	if got := b.Running["a"]; got.Components["dram"] != 50 || !slices.Equal(got.Methods, []string{"rapl"}) {
		t.Errorf("%+v, want half of the memory's energy", got)
	}
}

func TestUnusableIntervalsArePoison(t *testing.T) {
	good := interval("n1", "b", 1, cpu(1, 1, 0))
	if err := checkMeasured(good, factOf(good, "").Subject); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*event.Measured){
		"another node":     func(m *event.Measured) { m.Node = "n2" },
		"no boot":          func(m *event.Measured) { m.BootID = "" },
		"no number":        func(m *event.Measured) { m.Sequence = 0 },
		"no time":          func(m *event.Measured) { m.To = m.From },
		"backwards":        func(m *event.Measured) { m.To = m.From.Add(-time.Second) },
		"nameless meter":   func(m *event.Measured) { m.Meters = []event.Meter{{Method: "rapl"}} },
		"methodless meter": func(m *event.Measured) { m.Meters = []event.Meter{{Component: "cpu"}} },
	} {
		bad := good
		spoil(&bad)
		if err := checkMeasured(bad, factOf(good, "").Subject); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
