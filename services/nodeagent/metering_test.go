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
	"github.com/switchyard-dl/switchyard/libs/run"
)

func TestValidateMeters(t *testing.T) {
	for _, c := range []struct{ flags, words string }{
		{"--pdu-url=http://pdu --pdu-outlets=n1=3+4,n2=5", ""},
		{"--pdu-url=http://pdu", "go together"},
		{"--pdu-outlets=n1=3", "go together"},
		{"--pdu-url=pdu --pdu-outlets=n1=3", "http://ADDRESS"},
		{"--pdu-url=http://pdu --pdu-outlets=n1=x", "--pdu-outlets n1"},
		{"--pdu-url=http://pdu --pdu-outlets=n1=3 --pdu-interval=1ms", "--pdu-interval"},
		{"--redfish-url=n1=ftp://reader:secret@bmc", "--redfish-url n1: want"},
		{"--redfish-interval=2m", "--redfish-interval"},
		{"--perf-events=some", "auto or off"},
	} {
		err := service(t, strings.Fields(c.flags)...).Validate(run.Common{})
		if (err == nil) != (c.words == "") || err != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: error %v, want %q", c.flags, err, c.words)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%v tells a password", err)
		}
	}
}

// TestMetersOfANodeByName runs the agent of node x-1 beside a PDU, a log of PCM and settings that are meant for x-10.
func TestMetersOfANodeByName(t *testing.T) {
	pdu := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"sensor_values":[{},{"values":[[{},{},{},{},{"v":100}],[{},{},{},{},{"v":900}],[{},{},{},{},{"v":150}]]}]}`))
	}))
	t.Cleanup(pdu.Close)
	log := filepath.Join(t.TempDir(), "x-1.log")
	if err := os.WriteFile(log, []byte("PCM is starting\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := bustest.Connect(t, bustest.Start(t), "test")
	start(t, b.URL(), t.TempDir(), "--meter-name=x-1", "--pdu-url="+pdu.URL, "--pdu-outlets=x-1=0+2,x-10=1", "--pdu-interval=50ms",
		"--pcm-log=x-1="+log, "--redfish-url=x-10=https://bmc.invalid", "--rapl-root="+t.TempDir())

	// 250 W come from outlets 0 and 2, and the processors are modelled, since the log has no header.
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
	told := node(t, b, time.Now())
	if got := strings.Join(told.Meters, " "); got != "pdu modelled" {
		t.Errorf("meters %s", got)
	}
	if len(told.MeterTroubles) != 1 || !strings.Contains(told.MeterTroubles["pcm"], "no header line") {
		t.Errorf("troubles %v", told.MeterTroubles)
	}
}
