package mps

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// script is a control program that answers as NVIDIA's does while the folder of its pipes has a file "up", and does
// not answer while there is a file "sick". It counts its calls.
const script = `#!/bin/sh
read command
echo "$command" >> "$CUDA_MPS_PIPE_DIRECTORY/asked"
if [ -e "$CUDA_MPS_PIPE_DIRECTORY/sick" ]; then exit 1; fi
if [ ! -e "$CUDA_MPS_PIPE_DIRECTORY/up" ]; then echo "Cannot find MPS control daemon process"; exit "$FAKE_STATUS"; fi
`

func TestADaemonIsFoundWhileItAnswers(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, control), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv(dirName, dir)
	t.Setenv("FAKE_STATUS", "1")
	d, now := Find(""), time.Unix(1000, 0)
	ask := func(want string) {
		t.Helper()
		d.Ask(t.Context(), now)
		now = now.Add(interval)
		if got := d.Dir(); got != want {
			t.Errorf("folder %q, want %q", got, want)
		}
	}
	ask("") // no such program
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	ask("")
	t.Setenv("FAKE_STATUS", "0")
	ask("") // it says so only in its output
	up := filepath.Join(dir, "up")
	if err := os.WriteFile(up, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ask(dir)
	for range 3 {
		d.Ask(t.Context(), now.Add(-time.Second)) // it was asked a moment ago
	}
	if err := os.Remove(up); err != nil {
		t.Fatal(err)
	}
	ask("")
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	if want := "get_server_list\nget_server_list\nget_server_list\nget_server_list\n"; err != nil || string(asked) != want {
		t.Errorf("asked %q, error %v, want %q", asked, err, want)
	}
	if other := Find(filepath.Join(dir, "none")); other.dir != filepath.Join(dir, "none") || daemonIn(t, other) {
		t.Errorf("a daemon in %s", other.dir)
	}
}

func daemonIn(t *testing.T, d *Daemon) bool {
	t.Helper()
	runs, _ := d.answers(t.Context())
	return runs
}

// A single unanswered question takes nothing from the jobs that start meanwhile; several in a row do.
func TestADaemonMayMissAQuestion(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, control), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	up, sick := filepath.Join(dir, "up"), filepath.Join(dir, "sick")
	if err := os.WriteFile(up, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d, now := Find(dir), time.Unix(1000, 0)
	for i, c := range []struct {
		sick bool
		want string
	}{{true, ""}, {false, dir}, {true, dir}, {true, dir}, {false, dir}, {true, dir}, {true, dir}, {true, ""}, {false, dir}} {
		if c.sick {
			if err := os.WriteFile(sick, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		} else if err := os.RemoveAll(sick); err != nil {
			t.Fatal(err)
		}
		now = now.Add(interval)
		if d.Ask(t.Context(), now); d.Dir() != c.want {
			t.Errorf("question %d: folder %q, want %q", i+1, d.Dir(), c.want)
		}
	}
}
