package nodeagent

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
)

func TestValidateMeters(t *testing.T) {
	for _, c := range []struct{ flags, words string }{
		{"--pdu-url=http://pdu --pdu-outlets=n1=3+4,n2=5", ""},
		{"--pdu-url=http://pdu", "go together"},
		{"--pdu-outlets=n1=3", "go together"},
		{"--pdu-url=pdu --pdu-outlets=n1=3", "http://ADDRESS"},
		{"--pdu-url=http://pdu --pdu-outlets=n1=x", "n1: want the numbers of outlets"},
		{"--pdu-url=http://pdu --pdu-outlets=n1=3 --pdu-interval=1ms", "--pdu-interval"},
		{"--redfish-url=n1=ftp://reader:secret@bmc", "n1: want http"},
		{"--redfish-interval=2m", "--redfish-interval"},
		{"--perf-events=some", "auto or off"},
	} {
		_, err := configured(strings.Fields(c.flags)...)
		if (err == nil) != (c.words == "") || err != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: error %v, want %q", c.flags, err, c.words)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%v contains a password", err)
		}
	}
}

// TestMetersOfANodeByName runs the agent of node n1 with a PDU, a log of PCM and settings that are meant for n10.
func TestMetersOfANodeByName(t *testing.T) {
	t.Parallel()
	pdu := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"sensor_values":[{},{"values":[[{},{},{},{},{"v":100}],[{},{},{},{},{"v":900}],[{},{},{},{},{"v":150}]]}]}`))
	}))
	t.Cleanup(pdu.Close)
	log := filepath.Join(t.TempDir(), "n1.log")
	if err := os.WriteFile(log, []byte("PCM is starting\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := bustest.Connect(t, bustest.Start(t), "test")
	start(t, b.URL(), t.TempDir(), "--pdu-url="+pdu.URL, "--pdu-outlets=n1=0+2,n10=1", "--pdu-interval=50ms",
		"--pcm-log=n1="+log, "--redfish-url=n10=https://bmc.invalid", "--rapl-root="+t.TempDir())

	// 250 W come from outlets 0 and 2, and the processors are modelled, because the log has no header.
	ctx, stop := context.WithCancel(within(t))
	defer stop()
	err := b.Follow(ctx, event.StreamSamples, []string{"yard.energy.n1.measured.v1"}, 1, func(m bus.Message) {
		body, err := event.Decode[event.Measured](m.Data)
		if err != nil {
			t.Error(err)
		}
		for _, meter := range body.Meters {
			if meter.Component != event.ComponentNode || *meter.CoveredSeconds == 0 {
				continue
			}
			if watts := meter.Energy.Joules() / *meter.CoveredSeconds; meter.Method != "pdu" || watts < 249.9 || watts > 250.1 {
				t.Errorf("%+v: %g W, want 250 by the PDU", meter, watts)
			}
			if cpu := body.Meters[0]; cpu.Component != event.ComponentCPU || cpu.Method != "modelled" {
				t.Errorf("%+v", cpu)
			}
			stop()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	reported := node(t, b, time.Now())
	if got := strings.Join(reported.Meters, " "); got != "pdu modelled" {
		t.Errorf("meters %s", got)
	}
	if len(reported.MeterTroubles) != 1 || !strings.Contains(reported.MeterTroubles["pcm"], "no header line") {
		t.Errorf("troubles %v", reported.MeterTroubles)
	}
}
