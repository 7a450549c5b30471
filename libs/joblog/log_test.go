package joblog

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/rpc"
)

func openLog(t testing.TB, path string, limit int64) *Log {
	t.Helper()
	o, err := Open(path, limit)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// readAll follows a log from its beginning in pieces of the given size.
func readAll(t rapid.TB, path string, limit int64, piece int) (text string, cuts int) {
	t.Helper()
	var all []byte
	for offset := int64(0); ; {
		c, err := Read(path, rpc.LogRequest{Job: "j", Offset: offset, Max: piece}, limit)
		if err != nil {
			t.Fatal(err)
		}
		if c.Cut {
			cuts++
		}
		all = append(all, c.Data...)
		if c.Next <= offset {
			if c.Next != c.Size {
				t.Fatalf("stuck at %d of %d", c.Next, c.Size)
			}
			return string(all), cuts
		}
		offset = c.Next
	}
}

func TestLogKeepsItsBeginningAndItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "output.log")
	const limit, count = MinLimit, 100_000
	written := 0
	for attempt := range 3 { // the log is opened again for each attempt
		o := openLog(t, path, limit)
		for i := range count {
			line := fmt.Sprintf("attempt %d line %d\n", attempt, i)
			written += len(line)
			if _, err := o.Write([]byte(line)); err != nil {
				t.Fatal(err)
			}
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(raw) > limit || len(raw) < limit/2 {
		t.Errorf("the file has %d bytes, the limit is %d", len(raw), limit)
	}
	text := string(raw)
	if !strings.HasPrefix(text, "attempt 0 line 0\nattempt 0 line 1\n") || !strings.HasSuffix(text, fmt.Sprintf("attempt 2 line %d\n", count-1)) {
		t.Errorf("the log begins %.40q and ends %q", text, text[len(text)-40:])
	}
	marks := regexp.MustCompile(`(?m)^\[switchyard: \.*(\d+) bytes of output left out here\]\n`).FindAllStringSubmatch(text, -1)
	if len(marks) != 1 {
		t.Fatalf("marks %q, want one", marks)
	}
	left, err := strconv.Atoi(marks[0][1])
	if kept := len(text) - len(marks[0][0]); err != nil || left+kept != written {
		t.Errorf("%d bytes left out and %d kept, %d were written", left, kept, written)
	}
	for line := range strings.Lines(text) {
		if !regexp.MustCompile(`^(attempt \d line \d+|\[switchyard: .*\])\n$`).MatchString(line) {
			t.Fatalf("broken line %q", line)
		}
	}
	followed, cuts := readAll(t, path, limit, 1000)
	if cuts != 1 || !strings.Contains(followed, " bytes of output left out here]\n") {
		t.Errorf("%d cuts were reported", cuts)
	}
	end, err := Read(path, rpc.LogRequest{Job: "j", Offset: -10}, limit)
	if err != nil || string(end.Data) != text[len(text)-10:] || end.Size != int64(written) {
		t.Errorf("the last ten bytes are %q of %d, %v", end.Data, end.Size, err)
	}
}

// However a program writes, the log keeps a beginning and an end of it, and the numbers add up.
func TestLogAddsUp(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		path := filepath.Join(dir, fmt.Sprintf("log%d", n))
		for range rapid.IntRange(1, 3).Draw(t, "attempts") {
			o, err := Open(path, MinLimit)
			if err != nil {
				t.Fatal(err)
			}
			w := NewLines(o, "")
			for range rapid.IntRange(0, 30).Draw(t, "writes") {
				length := rapid.SampledFrom([]int{1, 10, 1000, maxLine - 1, maxLine, 3 * maxLine}).Draw(t, "length")
				end := rapid.SampledFrom([]string{"\n", "\n", "\r", ""}).Draw(t, "end")
				chunk := append(bytes.Repeat([]byte{byte('a' + n%26)}, length), end...)
				if _, err := w.Write(chunk); err != nil {
					t.Fatal(err)
				}
			}
			w.Flush()
			if err := o.Close(); err != nil {
				t.Fatal(err)
			}
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		s, err := readShape(f, MinLimit)
		if err != nil {
			t.Fatal(err)
		}
		if s.size > MinLimit || s.head > s.size || s.dropped < 0 || (s.skip > 0) != (s.dropped > 0) {
			t.Fatalf("shape %+v", s)
		}
		text, cuts := readAll(t, path, MinLimit, rapid.IntRange(1000, 100_000).Draw(t, "piece"))
		if kept := s.size - s.skip; cuts == 0 && int64(len(text)) != kept || cuts > 0 && int64(len(text)) != kept+int64(len(mark(s.dropped, 0))) {
			t.Fatalf("read %d bytes with %d cuts of %+v", len(text), cuts, s)
		}
	})
}

func TestLinesAreBounded(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"plain", "a\nb\n", "p a\n|p b\n|"},
		{"no end", "a\nb", "p a\n|p b\n|"},
		{"progress", "10%\r20%\rdone\r\n", "p 10%\r|p 20%\r|p done\r\n|"},
		{"long", strings.Repeat("x", maxLine+5) + "\nnext\n", "p " + strings.Repeat("x", maxLine) + "... [switchyard: 6 bytes of this line left out]\n|p next\n|"},
	}
	for _, test := range tests {
		for _, size := range []int{1, 3, 1 << 20} {
			var out parts
			l := NewLines(&out, "p ")
			for rest := []byte(test.in); len(rest) > 0; {
				n := min(size, len(rest))
				if _, err := l.Write(rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			l.Flush()
			want := test.want
			if size == 1 {
				want = strings.ReplaceAll(want, "\r\n|", "\r|p \n|") // the line end came in two pieces
			}
			if string(out) != want && string(out) != strings.ReplaceAll(test.want, "\r\n|", "\r|p \n|") {
				t.Errorf("%s in pieces of %d: %.100q, want %.100q", test.name, size, out, want)
			}
		}
	}
}

// parts keeps writes apart.
type parts []byte

func (p *parts) Write(b []byte) (int, error) {
	*p = append(append(*p, b...), '|')
	return len(b), nil
}

// A writer that was killed before it recorded its position removes what it wrote since, and writes it again: nothing is
// there twice.
func TestRewindTakesBackTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for _, before := range []int{0, 5, 4000, 40_000} {
		o := openLog(t, path, MinLimit)
		for i := range before {
			fmt.Fprintf(o, "line %d\n", i)
		}
		noted := o.Written()
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = o.Write([]byte("not noted\n"))
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
		again := openLog(t, path, MinLimit)
		for range 2 { // the second time there is nothing to remove
			if err := again.Rewind(noted); err != nil || again.Written() != noted {
				t.Errorf("after %d lines: %d bytes, want %d, error %v", before, again.Written(), noted, err)
			}
		}
		_ = again.Close()
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("after %d lines: %d bytes in the file, want %d, error %v", before, len(got), len(want), err)
		}
	}
}

func TestTailIsEscapedAndBounded(t *testing.T) {
	o := openLog(t, filepath.Join(t.TempDir(), "log"), MinLimit)
	if _, err := o.Write([]byte("\x1b[31mred\u202egnp.exe\x00\xff\u0085é\n")); err != nil {
		t.Fatal(err)
	}
	if got, want := o.Tail(), `\x1b[31mred\u202egnp.exe\x00\xff\u0085é`+"\n"; got != want {
		t.Errorf("tail %q, want %q", got, want)
	}
	if _, err := o.Write(bytes.Repeat([]byte("y"), 3*tailBytes)); err != nil {
		t.Fatal(err)
	}
	if got := o.Tail(); len(got) != tailBytes {
		t.Errorf("tail of %d bytes, want %d", len(got), tailBytes)
	}
}
