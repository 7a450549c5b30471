package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/local/trash"
)

func TestPeopleBeginWhereTheMachineSays(t *testing.T) {
	for text, want := range map[string]int{
		"UID_MIN 500\n": 500, "# UID_MIN 5\nUID_MIN\t\t 2000\n": 2000, "SYS_UID_MIN 100\n": 1000, "UID_MIN 0\n": 1000, "UID_MIN -1\n": 1000, "UID_MIN x\n": 1000, "": 1000,
	} {
		path := filepath.Join(t.TempDir(), "login.defs")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := firstPerson(path); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	if got := firstPerson("/nonexistent"); got != 1000 {
		t.Errorf("without a file: %d", got)
	}
	for _, uid := range []int{-1, 0, 1, 999, nobody} {
		if u, err := person(t.Context(), uid, 1000); err == nil {
			t.Errorf("user %d is the person %+v", uid, u)
		}
	}
}

func TestNothingOfTheLauncherIsPassedOnButTheMachine(t *testing.T) {
	got := ofMachine([]string{"PATH=/bin", "LD_PRELOAD=x", "LC_ALL=C", "NOTIFY_SOCKET=/run/x", "LANG=C", "TZ=UTC", "PATHX=1", "HOME=/root"})
	if want := []string{"PATH=/bin", "LC_ALL=C", "LANG=C", "TZ=UTC"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The key decides what runs as whom: a file that others than root can write is none.
func TestTheKeyIsRoots(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root, whose file the key is")
	}
	path := filepath.Join(t.TempDir(), "admission.pub")
	if err := os.WriteFile(path, []byte("UKEY\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if key, err := readKey(path); err != nil || key != "UKEY" {
		t.Errorf("%q, %v", key, err)
	}
	if err := os.Chmod(path, 0o664); err != nil {
		t.Fatal(err)
	}
	if _, err := readKey(path); err == nil || !strings.Contains(err.Error(), "others may write it") {
		t.Errorf("a key that a group may write: %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 1, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := readKey(path); err == nil {
		t.Error("a key of another user is taken")
	}
}

// A folder of another user, or a link in its place, is not taken for the one that is needed.
func TestAFolderOfAnotherIsNotTaken(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root, who alone gives folders away")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "own")
	for range 2 {
		if err := makeFolder(path, 64001, 0, ownMode); err != nil {
			t.Fatal(err)
		}
	}
	if err := makeFolder(path, 64002, 0, ownMode); err == nil {
		t.Error("the folder of another user is taken")
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/etc", link); err != nil {
		t.Fatal(err)
	}
	if err := makeFolder(link, 0, 0, ownMode); err == nil {
		t.Error("a link is taken")
	}
}

// Each request is sent by another user of the machine and by root, at a socket that lets everybody in, and gets no
// answer: the kernel says who asks. Then the service itself asks for a job that nobody has signed and that has not run.
func TestEveryRequestIsAttacked(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root, who alone can ask as other users")
	}
	const service, stranger = 64001, 64002
	open, err := os.MkdirTemp("", "switchyard-launcher-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(open) })
	key := filepath.Join(open, "admission.pub")
	if err := errors.Join(os.Chmod(open, 0o755), os.WriteFile(key, []byte("UKEY\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	l := &Launcher{
		config: Config{Socket: filepath.Join(open, "launcher.sock"), Jobs: filepath.Join(open, "jobs"), Key: key}, service: User{UID: service, GID: service},
		firstUID: 1000, trash: trash.In(filepath.Join(open, "jobs")), log: slog.New(slog.DiscardHandler),
	}
	listener, err := l.listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(l.config.Socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %s, %v", info.Mode(), err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var serving conc.WaitGroup
	serving.Go(func() { l.serve(ctx, listener) })
	defer serving.Wait()
	defer stop()
	if err := os.Chmod(l.config.Socket, 0o666); err != nil { // what the mode would keep out
		t.Fatal(err)
	}
	for do := range l.acts() {
		r := request{Do: do, Job: train.Job{ID: "ghost", Spec: train.Spec{Name: "x", UID: 1000, Command: []string{"touch", filepath.Join(open, "touched")}}}, Attempt: 1}
		for _, uid := range []int{stranger, 0} {
			if said := askAs(t, uid, l.config.Socket, r); len(said) > 0 {
				t.Errorf("user %d may ask for %s: %s", uid, do, said)
			}
		}
		said := askAs(t, service, l.config.Socket, r)
		if refused := strings.Contains(string(said), `"refused":true`); len(said) == 0 || refused != (do == doLaunch || do == doRetune) {
			t.Errorf("the service asks for %s of a job that is not signed: %s", do, said)
		}
	}
	if said := askAs(t, service, l.config.Socket, request{Do: "exec", Job: train.Job{ID: "ghost"}, Attempt: 1}); !strings.Contains(string(said), "does not know how") {
		t.Errorf("a request that there is not: %s", said)
	}
	if _, err := os.Stat(filepath.Join(open, "touched")); err == nil {
		t.Error("a job that is not signed ran")
	}
}

// What a user has put into the folder of his attempt holds nobody up: it loses its name, and goes later.
func TestAFullFolderHoldsNobodyUp(t *testing.T) {
	dir := t.TempDir()
	l := &Launcher{config: Config{Jobs: dir}, trash: trash.In(dir), log: slog.New(slog.DiscardHandler)}
	attempt := l.layout().Attempt("bob-1", 1)
	file := filepath.Join(attempt, "file")
	if err := errors.Join(installation.MakeFolder(attempt), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	if err := l.forget(request{Job: train.Job{ID: "bob-1"}, Attempt: 1}, nil); err != nil {
		t.Fatal(err)
	}
	at, err := installation.PathOf(held)
	if _, there := os.Lstat(attempt); err != nil || there == nil || filepath.Dir(filepath.Dir(at)) != filepath.Join(dir, "removed") {
		t.Errorf("the file is at %s, %v; the folder: %v", at, err, there)
	}
}

// askAs sends a request as a user of the machine, and returns the answer. The thread that connects has his number for
// the moment, and ends if it cannot become root again.
func askAs(t *testing.T, uid int, socket string, r request) []byte {
	t.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	become := func(uid int) {
		const same = ^uintptr(0)
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, same, uintptr(uid), same); errno != 0 {
			t.Fatal(errno)
		}
	}
	runtime.LockOSThread()
	become(uid)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
	become(0)
	runtime.UnlockOSThread()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	at, is := conn.(*net.UnixConn)
	if !is {
		t.Fatalf("%T", conn)
	}
	_ = at.SetDeadline(time.Now().Add(time.Minute))
	// A refused client may find the socket closed before it has written all.
	_, _ = at.Write(append([]byte{0}, data...))
	_ = at.CloseWrite()
	said, _ := io.ReadAll(at)
	return said
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"do": "launch", "job": {"id": "a"}, "attempt": 1, "asked": {}}`))
	f.Add([]byte(`{"do": "kill", "job": {"id": "../x"}, "attempt": -1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decode(data)
		if err != nil {
			return
		}
		if _, err := train.ParseJobID(string(r.Job.ID)); err != nil || r.Attempt < 1 {
			t.Errorf("%q: job %q, attempt %d", data, r.Job.ID, r.Attempt)
		}
	})
}
