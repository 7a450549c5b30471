package run_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
)

// fake is a service that tells when it runs and stops.
type fake struct {
	name    string
	wrong   error
	err     error
	atEnd   error
	running func(p run.Process)
	stopped func()
}

func (f *fake) Name() string { return f.name }

func (f *fake) Validate(run.Common) error { return f.wrong }

func (f *fake) Run(ctx context.Context, p run.Process) error {
	if f.running != nil {
		f.running(p)
	}
	if f.err != nil {
		return f.err
	}
	<-ctx.Done()
	if f.stopped != nil {
		f.stopped()
	}
	return f.atEnd
}

func TestBadConfigurationIsRefusedByName(t *testing.T) {
	tests := []struct {
		name    string
		args    []string
		environ []string
		want    []string
	}{
		{"unknown flag", []string{"--nope"}, nil, []string{"unknown flag: --nope"}},
		{
			"every wrong value at once",
			[]string{"--nats", "x", "--http", "y", "--log-level", "loud", "--log-format", "xml", "--data-dir", "rel", "--node", "a.b", "--quota", "a=-1"},
			[]string{"SWITCHYARD_PLAN_INTERVAL=1ms"},
			[]string{"--nats x: ", "--http y: ", "--log-level loud: ", "--log-format xml: ", "--data-dir rel: ", "--node a.b: ", "--quota", "SWITCHYARD_PLAN_INTERVAL 1ms: want 100ms to 1h0m0s"},
		},
		{"a variable that sets nothing", nil, []string{"SWITCHYARD_LOG_LEVLE=info"}, []string{"SWITCHYARD_LOG_LEVLE sets nothing", "did you mean SWITCHYARD_LOG_LEVEL?"}},
		{"a wrong variable of another service", nil, []string{"SWITCHYARD_CPU_SLOTS=many"}, []string{"SWITCHYARD_CPU_SLOTS"}},
		{"a variable with a wrong value", nil, []string{"SWITCHYARD_PLAN_INTERVAL=soon"}, []string{"SWITCHYARD_PLAN_INTERVAL"}},
		{"a flag of earlier versions", []string{"--plan-interval", "2s"}, nil, []string{
			"planner: --plan-interval is no longer a flag: set planner.plan_interval in switchyard.yaml, or SWITCHYARD_PLAN_INTERVAL",
		}},
		{"a setting that is gone", []string{"--kube-qps=5"}, nil, []string{"--kube-qps is gone: the executor sends up to 1000 requests"}},
		{"a file that is not there", []string{"--config", "/none.yaml"}, nil, []string{"read the configuration: open /none.yaml"}},
		{"what the service finds wrong", nil, nil, []string{"two settings do not fit"}},
		{"an argument", []string{"now"}, nil, []string{`unexpected argument "now"`}},
	}
	make := func(*settings.All) run.Service {
		return &fake{name: "planner", wrong: errors.New("two settings do not fit")}
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stderr strings.Builder
			if code := run.Main(tt.args, tt.environ, &stderr, settings.PlannerSection, make); code != run.ExitUsage {
				t.Errorf("exit code %d, want %d", code, run.ExitUsage)
			}
			for _, want := range tt.want {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("message %q lacks %q", stderr.String(), want)
				}
			}
		})
	}
}

func TestAProcessIsAskedWhetherItIsReady(t *testing.T) {
	status := http.StatusServiceUnavailable
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "planner/bus: away", status) }))
	defer server.Close()
	ask := func() (int, string) {
		var stderr strings.Builder
		code := run.Main([]string{"--http", server.Listener.Addr().String(), "ready"}, nil, &stderr, settings.PlannerSection, nil)
		return code, stderr.String()
	}
	if code, said := ask(); code != run.ExitError || !strings.Contains(said, "not ready: planner/bus: away") {
		t.Errorf("%d %q", code, said)
	}
	status = http.StatusOK
	if code, said := ask(); code != run.ExitOK || said != "" {
		t.Errorf("%d %q", code, said)
	}
	server.Close()
	if code, said := ask(); code != run.ExitError || !strings.Contains(said, "not ready: ") {
		t.Errorf("%d %q", code, said)
	}
}

func TestServicesStopInOrderAndTellTheirHealth(t *testing.T) {
	var mu sync.Mutex
	var order []string
	note := func(what string) func() {
		return func() { mu.Lock(); order = append(order, what); mu.Unlock() }
	}
	counted := make(chan struct{})
	first := &fake{name: "first", stopped: note("first"), running: func(p run.Process) { p.Started() }}
	second := &fake{name: "second", stopped: note("second"), running: func(p run.Process) {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "switchyard_things_total", Help: "Things."})
		p.Metrics.MustRegister(c)
		c.Inc()
		p.Check("bus", func() error { return errors.New("not there yet") })
		close(counted)
	}}
	ctx, stop := context.WithCancel(t.Context())
	address, done := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		done <- run.Together(ctx, run.Common{HTTP: "127.0.0.1:0"}, io.Discard, func(a net.Addr) { address <- a }, first, second)
	}()
	base := "http://" + (<-address).String()
	<-counted
	if code, _ := get(t, base+"/healthz"); code != http.StatusOK {
		t.Errorf("/healthz %d", code)
	}
	if code, body := get(t, base+"/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "second/bus: not there yet") || !strings.Contains(body, "second/started: starting") {
		t.Errorf("/readyz %d %q", code, body)
	}
	if _, body := get(t, base+"/metrics"); !strings.Contains(body, `switchyard_things_total{service="second"} 1`) {
		t.Errorf("/metrics lacks the counter:\n%s", body)
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, " "); got != "first second" {
		t.Errorf("stopped in order %q", got)
	}
}

func TestAFailingServiceStopsTheOthers(t *testing.T) {
	broken := errors.New("the disk is gone")
	stopped := false
	err := run.Together(t.Context(), run.Common{HTTP: "127.0.0.1:0"}, io.Discard, func(net.Addr) {},
		&fake{name: "good", stopped: func() { stopped = true }}, &fake{name: "bad", err: broken})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "bad: ") || !stopped {
		t.Fatalf("error %v, stopped %v", err, stopped)
	}
}

// An election of the servers of the bus must not end a process.
func TestAServiceBeginsAgainIfTheBusDidNotAnswer(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	runs := 0
	once := &fake{name: "once", err: fmt.Errorf("read the newest fact: %w", bus.ErrAway)}
	once.running = func(run.Process) {
		if runs++; runs == 2 {
			once.err = nil
			stop()
		}
	}
	if err := run.Together(ctx, run.Common{HTTP: "127.0.0.1:0", DataDir: t.TempDir()}, io.Discard, func(net.Addr) {}, once); err != nil || runs != 2 {
		t.Errorf("%d runs, %v", runs, err)
	}
}

// What a question to the bus answers when its context ends is no error of the process.
func TestAStopInTheMiddleOfAQuestionIsNoError(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	asking := &fake{name: "asking", running: func(run.Process) { stop() }, atEnd: fmt.Errorf("list notices: %w", context.Canceled)}
	if err := run.Together(ctx, run.Common{HTTP: "127.0.0.1:0", DataDir: t.TempDir()}, io.Discard, func(net.Addr) {}, asking); err != nil {
		t.Error(err)
	}
}

// TestAServiceThatDoesNotStopIsNamed: the process ends all the same, and the others stop well.
func TestAServiceThatDoesNotStopIsNamed(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	hung := make(chan struct{})
	t.Cleanup(func() { close(hung) })
	stopped := make(chan struct{})
	err := run.Together(ctx, run.Common{HTTP: "127.0.0.1:0"}, io.Discard, func(net.Addr) { stop() },
		&fake{name: "hung", stopped: func() { <-hung }}, &fake{name: "good", stopped: func() { close(stopped) }})
	if !errors.Is(err, run.ErrUnstopped) || !strings.Contains(err.Error(), "hung did not stop") || strings.Contains(err.Error(), "good") {
		t.Errorf("error %v", err)
	}
	<-stopped
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.Get(url) //nolint:noctx // a test on loopback
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

// Other users of the machine, and clients elsewhere, may read the metrics, and cannot have the service profiled.
func TestProfilesAreForTheOwner(t *testing.T) {
	h := run.Handler(run.NewHealth(), run.Registry())
	r, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/pprof/heap", nil), httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusForbidden {
		t.Errorf("from elsewhere: %d", w.Code)
	}
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0", ":0"} {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", listen)
		if err != nil {
			t.Logf("not on this machine: %v", err)
			continue
		}
		ctx, stop := context.WithCancel(t.Context())
		var serving conc.WaitGroup
		serving.Go(func() { _ = run.ServeListener(ctx, listener, h) })
		address := strings.Replace(listener.Addr().String(), "[::]:", "127.0.0.1:", 1)
		for uid, want := range map[int]int{os.Geteuid(): http.StatusOK, 64001: http.StatusForbidden} {
			if uid != os.Geteuid() && os.Geteuid() != 0 {
				continue // root alone can connect as another user
			}
			client := &http.Client{Transport: &http.Transport{DialContext: dialAs(uid), DisableKeepAlives: true}, Timeout: time.Minute}
			for path, want := range map[string]int{"/debug/pprof/heap": want, "/debug/pprof/trace?seconds=0.01": want, "/metrics": http.StatusOK} {
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				answer, err := client.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				_ = answer.Body.Close()
				if answer.StatusCode != want {
					t.Errorf("%s at %s as user %d: %s, want %d", path, listen, uid, answer.Status, want)
				}
			}
		}
		stop()
		serving.Wait()
	}
}

// dialAs connects with a socket of a user. The thread has his number for the moment, and ends if it cannot become root
// again.
func dialAs(uid int) func(ctx context.Context, network, address string) (net.Conn, error) {
	become := func(uid int) error {
		const same = ^uintptr(0)
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, same, uintptr(uid), same); errno != 0 {
			return errno
		}
		return nil
	}
	own := os.Geteuid()
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if uid == own {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
		runtime.LockOSThread()
		if err := become(uid); err != nil {
			return nil, err
		}
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if back := become(own); back != nil {
			return nil, back
		}
		runtime.UnlockOSThread()
		return c, err
	}
}
