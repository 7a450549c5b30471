package horovod

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The rendezvous of a job is closed to other users of the machine, whose addresses its processes would connect to.
func TestTheRendezvousIsItsUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root, who alone can connect as other users")
	}
	port := freePort(t)
	h, err := Serve(port, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, want := range []struct {
		uid    int
		method string
		status int
	}{
		{0, http.MethodPut, http.StatusOK},
		{64001, http.MethodPut, http.StatusForbidden},
		{64001, http.MethodGet, http.StatusForbidden},
		{64001, http.MethodDelete, http.StatusForbidden},
		{0, http.MethodGet, http.StatusOK},
	} {
		client := &http.Client{Transport: &http.Transport{DialContext: dialAs(t, want.uid), DisableKeepAlives: true}, Timeout: time.Minute}
		request, err := http.NewRequestWithContext(t.Context(), want.method, fmt.Sprintf("http://127.0.0.1:%d/global/0", port), strings.NewReader("10.0.0.1:5"))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want.status {
			t.Errorf("%s as user %d: %s, want %d", want.method, want.uid, answer.Status, want.status)
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	at, is := l.Addr().(*net.TCPAddr)
	if !is {
		t.Fatalf("%T", l.Addr())
	}
	return at.Port
}

// dialAs connects with a socket of another user. The thread has his number for the moment, and ends if it cannot become
// root again.
func dialAs(t *testing.T, uid int) func(ctx context.Context, network, address string) (net.Conn, error) {
	t.Helper()
	become := func(uid int) error {
		const same = ^uintptr(0)
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, same, uintptr(uid), same); errno != 0 {
			return errno
		}
		return nil
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		runtime.LockOSThread()
		if err := become(uid); err != nil {
			return nil, err
		}
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if back := become(0); back != nil {
			return nil, back
		}
		runtime.UnlockOSThread()
		return c, err
	}
}
