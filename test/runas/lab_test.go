// Package runas attacks a server that several people use: their jobs run as themselves, and nobody gets what is
// another's.
package runas

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/local/cgroup"
	"github.com/switchyard-dl/switchyard/services/executor/local/launcher"
	"github.com/switchyard-dl/switchyard/test/programs"
)

// Arguments that make the test program an attacker.
const (
	dialArgument = "__dial"
	askArgument  = "__ask"
)

// launch is what an attacker who is the service asks for.
type launch struct {
	Job     train.Job
	Attempt int
}

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == dialArgument {
		_, err := net.Dial("unix", os.Args[2]) //nolint:noctx // nothing is waited for
		fmt.Println("dialled:", err)
		os.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[1] == askArgument {
		var l launch
		if err := json.NewDecoder(os.Stdin).Decode(&l); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("answer:", launcher.Client{Socket: os.Args[2]}.Launch(l.Job, l.Attempt, cgroup.Bounds{}, struct{}{}, nil))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// person is a user of the machine, made for the test.
type person struct {
	name     string
	uid, gid int
	groups   []uint32
	home     string
}

// lab is a server with a service, a launcher and two people.
type lab struct {
	t testing.TB
	// dir has everything; people pass through it. programs has the programs, attacker is this one where all can run it.
	dir, programs, attacker string
	svc, ann, bob           person
	procs                   map[string]*exec.Cmd
	// port is that of the bus.
	port int
	// users are those that were made for the test.
	users []string
	ctx   context.Context //nolint:containedctx // the length of one test
}

func newLab(t testing.TB) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root, who alone can be several users")
	}
	for _, program := range []string{"useradd", "userdel", "getent", "setpriv"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s", program)
		}
	}
	dir, err := os.MkdirTemp("/var/tmp", "switchyard-lab-") // jobs have a /tmp of their own
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute)
	l := &lab{t: t, dir: dir, programs: filepath.Join(dir, "bin"), procs: map[string]*exec.Cmd{}, ctx: ctx, port: bustest.FreePort(t)}
	l.attacker = filepath.Join(l.programs, "attacker")
	t.Cleanup(func() { cancel(); l.end() })
	l.must(os.Chmod(dir, 0o755))
	l.must(os.MkdirAll(l.programs, 0o755))
	l.must(programs.Build(l.programs, programs.All()...))
	self, err := os.ReadFile(os.Args[0])
	l.must(errors.Join(err, os.WriteFile(l.attacker, self, 0o755)))
	mark := strconv.Itoa(os.Getpid() % 100000)
	l.svc = l.user("swy"+mark+"svc", "--system", "--shell", "/usr/sbin/nologin", "--home-dir", "/nonexistent")
	l.ann = l.user("swy"+mark+"ann", "--create-home", "--home-dir", filepath.Join(dir, "ann"), "--shell", "/bin/sh", "--groups", "audio")
	l.bob = l.user("swy"+mark+"bob", "--create-home", "--home-dir", filepath.Join(dir, "bob"), "--shell", "/bin/sh")
	for _, p := range []person{l.ann, l.bob} {
		l.must(os.Chmod(p.home, 0o700))
	}
	l.furnish(fmt.Sprintf("{run_as: submitter, launcher: %s, launcher_jobs: %s, data_allow: [127.0.0.1/32]}", l.path("launcher.sock"), l.path("jobs")))
	return l
}

// furnish makes the folders of the service, and its configuration with a section of the executor.
func (l *lab) furnish(executor string) {
	l.t.Helper()
	for _, own := range []string{"data", "run"} {
		l.must(errors.Join(os.Mkdir(l.path(own), 0o755), os.Chown(l.path(own), l.svc.uid, l.svc.gid)))
	}
	l.must(os.Chmod(l.path("data"), 0o700))
	l.write("switchyard.yaml", fmt.Sprintf(`bus: {port: %d}
data: {dir: %s}
process: {http: "127.0.0.1:0"}
executor: %s
nodeagent: {device_kind: cpu, cpu_slots: 2}
web: {shared_socket: %s}
`, l.port, l.path("data"), executor, l.path("run/web.sock")))
}

func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) write(name, text string) {
	l.t.Helper()
	l.must(os.WriteFile(l.path(name), []byte(text), 0o644))
}

// user makes a user of the machine until the end of the test.
func (l *lab) user(name string, options ...string) person {
	l.t.Helper()
	if out, err := exec.CommandContext(l.ctx, "useradd", append(options, name)...).CombinedOutput(); err != nil {
		l.t.Skipf("users cannot be made here: %v: %s", err, out)
	}
	l.users = append(l.users, name)
	line, err := exec.CommandContext(l.ctx, "getent", "passwd", name).Output()
	l.must(err)
	fields := strings.Split(strings.TrimSpace(string(line)), ":")
	p := person{name: name, home: fields[5]}
	p.uid, _ = strconv.Atoi(fields[2])
	p.gid, _ = strconv.Atoi(fields[3])
	groups, err := exec.CommandContext(l.ctx, "id", "-G", name).Output()
	l.must(err)
	for word := range strings.FieldsSeq(string(groups)) {
		group, _ := strconv.Atoi(word)
		p.groups = append(p.groups, uint32(group))
	}
	return p
}

// command makes a command of a user, who has a home and the programs in his PATH.
func (l *lab) command(p person, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(l.ctx, program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.gid), Groups: p.groups}}
	cmd.Dir = p.home
	cmd.Env = []string{"HOME=" + p.home, "USER=" + p.name, "PATH=" + l.programs + ":/usr/local/bin:/usr/bin:/bin", "SWITCHYARD_SOCKET=" + l.path("run/web.sock")}
	if run := filepath.Join(p.home, "run"); exists(run) {
		cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR="+run)
	}
	return cmd
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// run runs a command of a user, and returns what it says.
func (l *lab) run(p person, program string, args ...string) string {
	l.t.Helper()
	out, _ := l.command(p, filepath.Join(l.programs, program), args...).CombinedOutput()
	return string(out)
}

// up starts the service as its user, launch the launcher as root.
func (l *lab) up() {
	l.t.Helper()
	cmd := l.command(l.svc, "setpriv", "--no-new-privs", filepath.Join(l.programs, "switchyard-server"), "up", "--config", l.path("switchyard.yaml"))
	cmd.Dir, cmd.Env = "/", []string{"HOME=" + l.path("data"), "PATH=/usr/bin:/bin", "SWITCHYARD_CONTEXT=" + l.path("data/context.json")}
	l.start("up", cmd)
	l.until("the shared socket", func() bool { return strings.Contains(l.run(l.ann, "switchyard", "node", "list"), "cpu") })
}

func (l *lab) launch() {
	l.t.Helper()
	if _, err := os.Stat(l.path("admission.pub")); err != nil {
		var key []byte
		l.until("admission's key", func() bool {
			key, err = os.ReadFile(filepath.Join(l.path("data"), "keys", "admission.pub"))
			return err == nil
		})
		l.write("admission.pub", string(key))
	}
	l.start("launcher", exec.CommandContext(l.ctx, "unshare", append(append([]string{"--mount", "sh", "-c", hybrid, "setpriv"}, l.rights("launcher")...), filepath.Join(l.programs, "switchyard-supervisor"), "launcher",
		"--user", l.svc.name, "--socket", l.path("launcher.sock"), "--jobs", l.path("jobs"), "--key", l.path("admission.pub"))...))
	l.until("the launcher", func() bool {
		c, err := net.Dial("unix", l.path("launcher.sock")) //nolint:noctx // nothing is waited for
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

// hybrid hides the groups of version 2 from what follows: crun takes those of version 1 or of version 2, not both.
const hybrid = `umount /sys/fs/cgroup/unified 2>/dev/null; exec "$0" "$@"`

// rights returns the flags of setpriv for the rights that a unit of `switchyard install` leaves to its program.
func (l *lab) rights(program string) []string {
	l.t.Helper()
	out, err := exec.CommandContext(l.ctx, filepath.Join(l.programs, "switchyard"), "install", "--print", "--programs", l.programs, "--user", l.svc.name).Output()
	l.must(err)
	set, found := "-all", false
	for line := range strings.Lines(string(out)) {
		found = found || strings.HasPrefix(line, "    ExecStart=") && strings.Contains(line, " "+program+" ")
		if names, is := strings.CutPrefix(strings.TrimSpace(line), "CapabilityBoundingSet="); is && found {
			for name := range strings.FieldsSeq(names) {
				set += ",+" + strings.ToLower(strings.TrimPrefix(name, "CAP_"))
			}
			return []string{"--no-new-privs", "--bounding-set=" + set}
		}
	}
	l.t.Fatalf("no unit of %s:\n%s", program, out)
	return nil
}

func (l *lab) start(name string, cmd *exec.Cmd) {
	l.t.Helper()
	log, err := os.OpenFile(l.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	l.must(err)
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr, cmd.Cancel = log, log, func() error { return nil }
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	l.must(cmd.Start())
	l.procs[name] = cmd
}

func (l *lab) kill(name string) {
	cmd := l.procs[name]
	delete(l.procs, name)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// end ends everything, also what an attack has left.
func (l *lab) end() {
	for name := range l.procs {
		l.kill(name)
	}
	if l.t.Failed() {
		for _, name := range []string{"up", "launcher"} {
			data, _ := os.ReadFile(l.path(name + ".log"))
			l.t.Logf("%s:\n%s", name, data[max(0, len(data)-6000):])
		}
	}
	trees, err := cgroup.ThisMachine().OpenTrees()
	jobs, _ := os.ReadDir(l.path("jobs/jobs"))
	for _, job := range jobs {
		for number := 1; number < 10 && err == nil; number++ {
			groups := trees.Of(l.path("jobs"), train.Attempt{Job: train.JobID(job.Name()), Number: number}.Name())
			for groups.Kill() > 0 { //nolint:revive // until none is left
			}
			_ = groups.Remove()
		}
	}
	for _, name := range l.users { // whose processes have ended by now, but for those of podman, which runs on
		_ = exec.Command("pkill", "-KILL", "-u", name).Run() // the user is of this test alone
		out, err := exec.Command("userdel", name).CombinedOutput()
		for range 50 { // what was killed takes a moment to go
			if err == nil {
				break
			}
			<-time.After(100 * time.Millisecond)
			out, err = exec.Command("userdel", name).CombinedOutput()
		}
		if err != nil {
			l.t.Errorf("the user %s is left: %v: %s", name, err, out)
		}
	}
	_ = os.RemoveAll(l.dir)
}

// until waits for a condition.
func (l *lab) until(what string, done func() bool) {
	l.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-l.ctx.Done():
			l.t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}

// submit submits a job of a person, with flags before the --.
func (l *lab) submit(p person, id string, flags []string, command ...string) {
	l.t.Helper()
	out := l.run(p, "switchyard", append(append([]string{"submit", "--id", id, "--name", id}, flags...), append([]string{"--"}, command...)...)...)
	if !strings.Contains(out, "admitted") && !strings.Contains(out, "an array of ") {
		l.t.Fatalf("submit %s: %s", id, out)
	}
}

// job returns the record of a job, as root sees it.
func (l *lab) job(id string) (job train.Job) {
	l.t.Helper()
	cmd := l.command(l.svc, filepath.Join(l.programs, "switchyard"), "describe", id, "-o", "json")
	cmd.Dir = "/"
	out, err := cmd.Output()
	var d struct {
		Job train.Job `json:"job"`
	}
	if err == nil {
		err = json.Unmarshal(out, &d)
	}
	if err != nil {
		return train.Job{}
	}
	return d.Job
}

// ended waits for the end of a job and returns its record and its output, as its owner sees it.
func (l *lab) ended(p person, id string) (train.Job, string) {
	l.t.Helper()
	var job train.Job
	l.until("the end of "+id, func() bool { job = l.job(id); return job.State.Terminal() })
	return job, l.run(p, "switchyard", "logs", id)
}

// runs waits until a job runs, and returns the number of its supervisor.
func (l *lab) runs(id string) (supervisor int) {
	l.t.Helper()
	l.until("the start of "+id, func() bool { return l.job(id).State == train.StateRunning })
	r, _, err := launcher.Read(installation.Layout{DataDir: l.path("jobs"), People: true}, train.JobID(id))
	l.must(err)
	return r.PID
}

// ask asks the launcher as a user, with the attacker's own client.
func (l *lab) ask(p person, job train.Job, attempt int) string {
	l.t.Helper()
	data, err := json.Marshal(launch{job, attempt})
	l.must(err)
	cmd := l.command(p, l.attacker, askArgument, l.path("launcher.sock"))
	cmd.Dir, cmd.Stdin = "/", bytes.NewReader(data)
	out, _ := cmd.CombinedOutput()
	return string(out)
}

// sign signs a job with admission's key.
func (l *lab) sign(job train.Job) train.Job {
	l.t.Helper()
	key, err := identity.Keys(filepath.Join(l.path("data"), "keys")).Seal()
	l.must(err)
	job.Seal, err = key.Sign(job)
	l.must(err)
	return job
}

// connect connects to the bus with the key of a role until the end of the test.
func (l *lab) connect(role string) *bus.Bus {
	l.t.Helper()
	b, err := bus.Connect(l.ctx, bus.Config{URL: fmt.Sprintf("nats://127.0.0.1:%d", l.port), Name: role, Keys: l.path("data/keys")})
	l.must(err)
	l.t.Cleanup(func() { b.Close() })
	return b
}

// publishAs submits a job with the key of a service, which says nothing of a person.
func (l *lab) publishAs(role, id string, spec train.Spec) {
	l.t.Helper()
	l.must(l.connect(role).Publish(l.ctx, event.OnceFact(train.JobID(id), event.FactSubmitted, "submitted", event.Submitted{Spec: spec})))
}
