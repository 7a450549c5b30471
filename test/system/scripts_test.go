package system

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// row is one script of the table: what a person runs, and what that person expects of it.
type row struct {
	name string
	// files are those of the row's folder: a text, `@NAME` for a copy of testdata/scripts/NAME, `->PATH` for a link. What
	// begins with #! may be executed.
	files map[string]string
	// command is what follows `switchyard`. If it returns at once (-d), the rest comes from `wait` and `logs`.
	command []string
	env     []string
	// before runs first, meanwhile while a detached job runs, and after at the end.
	before, meanwhile, after func(*session)

	code     int
	state    train.State // default: succeeded or failed, by code
	attempts int         // default: 1
	// prints is what command line and job print, omits what they do not, describe what describe says.
	prints, omits, describe []string
	needs                   need
}

// need is what a row takes of the machine, beyond a shell.
type need int

const (
	nothing need = iota
	python
	// torch takes PyTorch, patience a minute; both are run by `make test-scripts`.
	torch
	patience
)

// Each script of a person who knows nothing of Switchyard ends as that person would expect, beside all the others.
func TestScriptsEndAsTheirUsersExpect(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.flags = []string{"--allow-root", c.dir, "--cpu-slots", "8"}
	home := filepath.Join(c.dir, "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	prices := filepath.Join(c.dir, "tariff.yaml")
	if err := os.WriteFile(prices, []byte("currency: EUR\nprice_per_kwh: 0.3\ncarbon: {grams_per_kwh: 400}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.flags = append(c.flags, "--tariff", prices)
	c.env = []string{"HOME=" + home, "OMP_NUM_THREADS=1"}
	interpreter := debianTorch()
	if interpreter == "" {
		interpreter, _ = exec.LookPath("python3")
	}
	c.start("up")
	c.connect()
	tables := [][]row{ends(), outputs(), lives(), reporting(interpreter)}
	rows := pool.New().WithMaxGoroutines(4)
	for _, r := range slices.Concat(tables...) {
		rows.Go(func() {
			t.Run(r.name, func(t *testing.T) {
				if why := r.missing(interpreter); why != "" {
					t.Skip(why)
				}
				own := *c
				own.t = t
				s := &session{T: t, cluster: &own, dir: filepath.Join(c.dir, "rows", r.name), env: append([]string{
					"PATH=" + filepath.Dir(interpreter) + ":/usr/bin:/bin",
				}, r.env...)}
				s.play(r)
			})
		})
	}
	rows.Wait()
}

// missing says why a row cannot be run here, or not by `make test`.
func (r row) missing(interpreter string) string {
	switch {
	case r.needs >= python && interpreter == "":
		return "there is no python3"
	case r.needs >= torch && os.Getenv("SCRIPTS") == "":
		return "SCRIPTS is not set (make test-scripts): a minute more"
	case r.needs == torch && debianTorch() == "":
		return "python3 has no torch here (Debian: apt-get install python3-torch)"
	}
	return ""
}

// session is a person at a shell, in a folder with a script.
type session struct {
	*testing.T
	cluster *cluster
	dir     string
	env     []string
	// id is the job of the row, output what was printed so far.
	id     train.JobID
	output string
}

var submitted = regexp.MustCompile(`job (\S+)`)

// play does what the row says, and compares.
func (s *session) play(r row) {
	s.prepare(r.files)
	if r.before != nil {
		r.before(s)
	}
	var code int
	code, s.output = s.switchyard(r.command...)
	found := submitted.FindStringSubmatch(s.output)
	if found == nil {
		s.Fatalf("exit code %d, no job: %s", code, s.output)
	}
	s.id = train.JobID(found[1])
	if slices.Contains(r.command, "-d") {
		if r.meanwhile != nil {
			r.meanwhile(s)
		}
		var said, logged string
		code, said = s.switchyard("wait", string(s.id))
		_, logged = s.switchyard("logs", "--raw", string(s.id))
		s.output += logged + said
	}
	s.judge(r, code)
	if r.after != nil {
		r.after(s)
	}
}

// judge compares how the job ended with what the row says.
func (s *session) judge(r row, code int) {
	state, attempts := r.state, max(r.attempts, 1)
	switch {
	case state == train.StateRejected:
		attempts = 0
	case state != train.StateNone:
	case code == 0:
		state = train.StateSucceeded
	default:
		state = train.StateFailed
	}
	var d struct{ Job train.Job }
	_, text := s.switchyard("describe", "-o", "json", string(s.id))
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		s.Fatalf("describe: %v: %s", err, text)
	}
	if code != r.code || d.Job.State != state || d.Job.Attempt != attempts {
		s.Errorf("exit code %d, %s after %d attempts, want %d, %s after %d: %s", code, d.Job.State, d.Job.Attempt, r.code, state, attempts, shortened(s.output))
	}
	s.contains(s.output, r.prints)
	for _, text := range r.omits {
		if strings.Contains(s.output, text) {
			s.Errorf("%q is in %s", text, shortened(s.output))
		}
	}
	if len(r.describe) > 0 {
		_, text := s.switchyard("describe", string(s.id))
		s.contains(text, r.describe)
	}
}

func (s *session) contains(output string, texts []string) {
	for _, text := range texts {
		if !strings.Contains(output, text) {
			s.Errorf("no %q in %s", text, shortened(output))
		}
	}
}

// shortened keeps a report readable.
func shortened(output string) string {
	const most = 4000
	if len(output) > most {
		return output[:most/2] + " [..] " + output[len(output)-most/2:]
	}
	return output
}

// prepare makes the row's folder.
func (s *session) prepare(files map[string]string) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		s.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(s.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			s.Fatal(err)
		}
		if target, link := strings.CutPrefix(text, "->"); link {
			if err := os.Symlink(target, path); err != nil {
				s.Fatal(err)
			}
			continue
		}
		if script, given := strings.CutPrefix(text, "@"); given {
			data, err := os.ReadFile(filepath.Join("testdata", "scripts", script))
			if err != nil {
				s.Fatal(err)
			}
			text = string(data)
		}
		mode := os.FileMode(0o600)
		if strings.HasPrefix(text, "#!") || strings.HasPrefix(text, "echo ") {
			mode = 0o700
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			s.Fatal(err)
		}
	}
}

// switchyard runs the command line in the row's folder.
func (s *session) switchyard(words ...string) (int, string) {
	s.Helper()
	cmd := exec.CommandContext(s.cluster.ctx, filepath.Join(binaries, "switchyard"), words...)
	if _, err := os.Stat(s.dir); err == nil { // one script removes it
		cmd.Dir = s.dir
	}
	cmd.Env = append(append(s.cluster.environ(), "SWITCHYARD_NATS="+s.cluster.url()), s.env...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		s.Fatalf("switchyard %q: %v", words, err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// awaits waits until a command about the job prints a text.
func (s *session) awaits(text, verb string) {
	s.cluster.eventually(fmt.Sprintf("%s %s: want %q", verb, s.id, text), func() error {
		if _, out := s.switchyard(verb, string(s.id)); !strings.Contains(out, text) {
			return fmt.Errorf("%w: %s", errNotListed, shortened(out))
		}
		return nil
	})
}

// does runs a command about the job, which must succeed.
func (s *session) does(verb string) {
	if code, out := s.switchyard(verb, string(s.id)); code != 0 {
		s.Errorf("%s: %d, %s", verb, code, out)
	}
}

// nothingIsLeft reports processes that still work in the row's folder.
func nothingIsLeft(s *session) {
	left := processes(func(proc string) bool {
		cwd, _ := os.Readlink(filepath.Join(proc, "cwd"))
		return cwd == s.dir
	})
	for _, pid := range left {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if len(left) > 0 {
		s.Errorf("processes %v are left over", left)
	}
}
