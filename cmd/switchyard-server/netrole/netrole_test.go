package netrole

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/train"
)

const published = `<config>
controller='100.1.0.1:8180'
diagnoser='100.1.0.1:9090'
pinger_listen_port=7071
responder_listen_port=7070
server_1='10.0.0.2'
server_2='10.0.1.2'
interval=0.1
time_cyc=60
sys_choice=1
</config>
`

func TestThePublishedConfigIsRead(t *testing.T) {
	c, err := ParseConfig(published)
	if err != nil || c.Controller != "100.1.0.1:8180" || c.Diagnoser != "100.1.0.1:9090" || c.PingerPort != 7071 || c.ResponderPort != 7070 ||
		len(c.Servers) != 2 || c.Servers[1].String() != "10.0.1.2" || c.Interval != 100*time.Millisecond || c.Cycle != time.Minute {
		t.Errorf("%+v, %v", c, err)
	}
	_, err = ParseConfig(strings.NewReplacer("0.1\n", "never\n", "sys_choice=1", "sys_choice=2", "server_2='10.0.1.2'", "sever_2=x").Replace(published))
	for _, want := range []string{"interval=never", "sys_choice=2", "sever_2", "two servers"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

func TestThePublishedFileIsRead(t *testing.T) {
	dir := os.Getenv("SWITCHYARD_DATA")
	if dir == "" {
		t.Skip("SWITCHYARD_DATA does not name the folder of published data")
	}
	text, err := os.ReadFile(filepath.Join(dir, "detector", "config.xml"))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := ParseConfig(string(text)); err != nil || len(c.Servers) != 8 {
		t.Errorf("%+v, %v", c, err)
	}
}

// The servers are addresses of this machine.
func TestThePartsWorkTogetherWithoutABus(t *testing.T) {
	c := Config{
		Controller: fmt.Sprintf("127.0.0.1:%d", bustest.FreePort(t)), Diagnoser: fmt.Sprintf("127.0.0.1:%d", bustest.FreePort(t)),
		Interval: 10 * time.Millisecond, Cycle: time.Second,
		KeyFile: filepath.Join(t.TempDir(), "config.xml.key"), PathsFile: filepath.Join(t.TempDir(), "config.xml.paths"),
	}
	for i := range 4 { // addresses of this process alone: source ports are the same everywhere
		c.Servers = append(c.Servers, netip.AddrFrom4([4]byte{127, byte(64 + os.Getpid()>>8%64), byte(os.Getpid()), byte(2 + i)}))
	}
	c.ResponderPort = freeUDP(t, c.Servers[0])
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running conc.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	log := slog.New(slog.DiscardHandler)
	goes := func(f func() error) {
		running.Go(func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		})
	}
	goes(func() error { return Controller(ctx, c, log, func(net.Addr) {}) })
	// Only the controller has the file.
	follows := func(role func(context.Context, Config) error) {
		goes(func() error {
			if err := Follow(ctx, c.Controller, log, role); ctx.Err() == nil {
				return err
			}
			return nil // the test is over
		})
	}
	follows(func(ctx context.Context, c Config) error { return Diagnose(ctx, c, log, func(net.Addr) {}) })
	lossy := c.Servers[3]
	for _, s := range c.Servers {
		follows(func(ctx context.Context, c Config) error { return Pinger(ctx, c, s, log) })
		if s != lossy {
			follows(func(ctx context.Context, c Config) error { return Responder(ctx, c, s, log) })
		}
	}
	// In place of the fourth responder stands one that never hears anything: it reports, and all probes to it are lost.
	goes(func() error {
		deaf := c
		deaf.ResponderPort = 0
		return Responder(ctx, deaf, lossy, log)
	})
	deadline := time.After(4 * time.Minute)
	client := http.Client{Timeout: 5 * time.Second}
	want := "to-" + strings.ReplaceAll(lossy.String(), ".", "-")
	for {
		v, err := get[Verdict](t.Context(), &client, "http://"+c.Diagnoser+"/links")
		if err == nil && len(v.Links) == 1 && v.Links[0].ID == want || err == nil && len(v.Links) == 1 && v.Links[0].ID == "to-"+string(nodeOf(lossy)) {
			if v.Links[0].Loss != 1 {
				t.Errorf("%+v", v.Links)
			}
			break
		}
		select {
		case <-deadline:
			lists, _ := get[map[train.NodeID]train.Pinglist](t.Context(), &client, "http://"+c.Controller+"/pinglists")
			t.Fatalf("%+v, %v, lists %+v", v, err, lists)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func TestAListThatIsNotThereIsAskedForSoon(t *testing.T) {
	asked := make(chan struct{}, 2)
	controller := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		http.Error(w, "still starting", http.StatusServiceUnavailable)
	}))
	defer controller.Close()
	a := &agent{config: Config{Controller: controller.Listener.Addr().String(), Cycle: time.Hour}, node: "n", log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	var running conc.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = a.fetch(ctx) })
	for n := range 2 {
		select {
		case <-asked:
		case <-time.After(time.Minute):
			t.Fatalf("asked %d times", n)
		}
	}
}

func freeUDP(t *testing.T, at netip.Addr) int {
	t.Helper()
	p, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", netip.AddrPortFrom(at, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	return p.LocalAddr().(*net.UDPAddr).Port
}
