package pcm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// copied is a fixture that can be written to.
func copied(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func write(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// reading is what a log reports, in numbers.
type reading struct {
	cpu, memory float64
	covered     time.Duration
}

func read(t *testing.T, l *Log) (reading, int) {
	t.Helper()
	spent, err := l.Read(time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var r reading
	for _, s := range spent {
		r.covered = *s.Covered
		if s.Component == "cpu" {
			r.cpu = s.Energy.Joules()
		} else {
			r.memory = s.Energy.Joules()
		}
	}
	return r, len(spent)
}

func TestALogIsFollowed(t *testing.T) {
	path := copied(t, "semicolons.csv")
	l := Open(path)
	for i, step := range []struct {
		written string
		want    reading
		columns int
	}{
		{"", reading{}, 0}, // what is there already does not count
		{"2020-06-12;10:00:03.200;0;0;0;0;50.5;10;0;0;50.5\n", reading{}, 2}, // it began before we did
		{"2020-06-12;10:00:04.200;0;0;0;0;51.5;10.5;0;0;51.5\n", reading{51.5, 10.5, time.Second}, 2},
		{"", reading{}, 2},
		{"2020-06-12;10:00:05.200;0;0;0;0;5", reading{}, 2}, // half a line
		{"2.5;10;0;0;52.5\n2020-06-12;10:00:06.700;0;0;0;0;70;20;0;0;70\n", reading{122.5, 30, 2500 * time.Millisecond}, 2},
		// PCM was restarted, with fewer columns.
		{"System;;;;;;;;Socket0;;\nDate;Time;Proc Energy (Joules);DRAM Energy (Joules)\n", reading{}, 2},
		{"2020-06-12;10:00:08.700;33;3\n", reading{33, 3, 2 * time.Second}, 2},
	} {
		write(t, path, step.written)
		got, n := read(t, l)
		if got != step.want || n != step.columns {
			t.Errorf("step %d: %+v of %d components, want %+v of %d", i, got, n, step.want, step.columns)
		}
	}
}

func TestCommasAndNoMemory(t *testing.T) {
	path := copied(t, "commas.csv")
	l := Open(path)
	read(t, l)
	write(t, path, "2024-02-01,23:59:59.500,0.3,1.2,80,0.3\n2024-02-02,00:00:00.500,0.3,1.2,90,0.3\n")
	if got, n := read(t, l); n != 1 || got != (reading{90, 0, time.Second}) {
		t.Errorf("%+v of %d components", got, n)
	}
}

func TestALogThatIsBegunAnew(t *testing.T) {
	path := copied(t, "semicolons.csv")
	l := Open(path)
	read(t, l)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Read(time.Second); err == nil {
		t.Error("want to hear that the log is away")
	}
	write(t, path, "Date,Time,Proc Energy (Joules)\n2020-06-12,11:00:00,7\n")
	read(t, l)
	write(t, path, "2020-06-12,11:00:01,8\n2020-06-12,11:00:02,9\n")
	if got, _ := read(t, l); got != (reading{9, 0, time.Second}) {
		t.Errorf("%+v", got)
	}
}

// TestEnergyIsReportedOnceOrNever reads a log every second whose lines come less often. While it reports nothing
// another meter is used, so the line that ends the silence must not count the energy of that time again.
func TestEnergyIsReportedOnceOrNever(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n1.log")
	write(t, path, "Date;Time;Proc Energy (Joules)\n")
	l := Open(path)
	read(t, l)
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for second := range 240 {
		switch {
		case second == 150:
			write(t, path, "what is this\n")
		case second < 120 && second%30 == 0, second > 120 && second%20 == 0: // PCM is restarted with more lines
			write(t, path, begin.Add(time.Duration(second)*time.Second).Format("2006-01-02;15:04:05")+";100\n")
		}
		spent, err := l.Read(time.Second)
		// The first line is awaited in vain for ten seconds, because the spacing is not known yet.
		if away := second > 10 && second < 30 || second == 150; away != (err != nil) {
			t.Fatalf("second %d: error %v", second, err)
		}
		energy := 0.0
		if len(spent) > 0 {
			energy = spent[0].Energy.Joules()
		}
		want := 0.0
		switch second {
		case 60, 90, 140, 180, 200, 220:
			want = 100
		}
		if energy != want {
			t.Errorf("second %d: %g J, want %g", second, energy, want)
		}
	}
}

func TestErrorsAreReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n1.log")
	l := Open(path)
	trouble := func(want string) {
		t.Helper()
		if spent, err := l.Read(time.Second); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v, error %v, want %q", spent, err, want)
		}
	}
	trouble("no such file")
	write(t, path, "Starting PCM\n")
	trouble("no header line")
	write(t, path, "Date;Time;Proc Energy (Joules)\n")
	read(t, l)
	write(t, path, "2020-06-12;10:00:00\n")
	trouble("too short")
	write(t, path, "2020-06-12;10:00:01;N/A\n")
	trouble("N/A")
	write(t, path, "2020-06-12;10:00:02;-4\n")
	trouble("-4 J")
	write(t, path, "12.6.2020;10:00:02;4\n")
	trouble("12.6.2020")
	for range leastQuiet / time.Second {
		_, _ = l.Read(time.Second)
	}
	trouble("nothing was written for 1")
	write(t, path, "2020-06-12;10:00:20;4\n2020-06-12;10:00:21;4\n")
	if got, _ := read(t, l); got != (reading{4, 0, time.Second}) {
		t.Errorf("%+v after the trouble", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("2020-06-12;10:00:01.200;61.50;11.25")
	f.Add("Date;Time;Proc Energy (Joules)")
	f.Fuzz(func(t *testing.T, text string) {
		l := Log{columns: header("Date;Time;Proc Energy (Joules);DRAM Energy (Joules)")}
		parsed, ok, err := l.parse(text)
		if err == nil && ok && (parsed.cpu < 0 || parsed.memory < 0 || parsed.cpu > 1e9*unit.Joule) {
			t.Errorf("%+v of %q", parsed, text)
		}
	})
}
