package powermeter

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// TestEnergyBetweenAnswers plays the answers of a gauge that is polled every second.
func TestEnergyBetweenAnswers(t *testing.T) {
	m := New("pdu", nil, time.Second)
	if _, err := m.read(start); err == nil {
		t.Error("want to hear that nothing is known yet")
	}
	away := errors.New("no route to host")
	now := start
	for i, step := range []struct {
		after  time.Duration
		watts  float64
		err    error
		joules float64
		known  bool
	}{
		{0, 100, nil, 0, true},                         // nothing to compare with, and no error
		{time.Second, 200, nil, 150, true},             // the mean of both
		{2500 * time.Millisecond, 200, nil, 500, true}, // a late answer counts for the time that passed
		{time.Second, 0, away, 0, true},                // a missing one
		{time.Second, 100, nil, 300, true},             // is covered by the next
		{10 * time.Second, 0, away, 0, true},           // as far as the limit
		{time.Second, 0, away, 0, false},               // beyond it there is a gap
		{20 * time.Second, 500, nil, 0, true},          // without invented energy
		{time.Second, 500, nil, 500, true},
		{-time.Hour, 500, nil, 0, true}, // a clock that goes back adds nothing
		{time.Second, 500, nil, 500, true},
	} {
		now = now.Add(step.after)
		m.take(unit.Watts(step.watts), step.err, now)
		got, err := m.read(now)
		if (err == nil) != step.known {
			t.Fatalf("step %d: error %v", i, err)
		}
		if err != nil {
			if !errors.Is(err, away) {
				t.Errorf("step %d: %v, want the reason", i, err)
			}
			continue
		}
		if got[0].Component != "node" || got[0].Energy.Joules() != step.joules {
			t.Errorf("step %d: %+v, want %g J", i, got[0], step.joules)
		}
		if covered := *got[0].Covered; (covered > 0) != (step.joules > 0) || covered > 4*time.Second {
			t.Errorf("step %d: covered %s", i, covered)
		}
	}
}

// serve answers by path; other paths are not found.
func serve(t *testing.T, pages map[string]string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, found := pages[r.URL.RequestURI()]
		if user, password, _ := r.BasicAuth(); strings.HasPrefix(r.URL.Path, "/redfish") && (user != "reader" || password != "secret") {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		if !found {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(page))
	}))
	t.Cleanup(s.Close)
	return s
}

func TestPDU(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("testdata", "statusjsn.json"))
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, map[string]string{"/statusjsn.js?components=16384": string(page), "/empty/statusjsn.js?components=16384": `{"sensor_values":[]}`})
	for _, c := range []struct {
		url, outlets string
		watts        float64
		trouble      string
	}{
		{"", "0", 68.5, ""},
		{"/", "1+2", 487.5, ""}, // a node with two power supplies; one number is written as text
		{"", "3", 0, "outlet 3"},
		{"", "4", 0, "outlet 4 is not there: the PDU has 4"},
		{"/empty", "0", 0, "no sensor_values"},
		{"/absent", "0", 0, "404"},
	} {
		outlets, err := ParseOutlets(c.outlets)
		if err != nil {
			t.Fatal(err)
		}
		got, err := NewPDU(s.URL+c.url, outlets, s.Client()).Power(t.Context())
		if (err == nil) != (c.trouble == "") || err != nil && !strings.Contains(err.Error(), c.trouble) || got.Watts() != c.watts {
			t.Errorf("outlets %s of %q: %g W, error %v", c.outlets, c.url, got.Watts(), err)
		}
	}
	for _, bad := range []string{"", "x", "-1", "1+", "1,2"} {
		if got, err := ParseOutlets(bad); err == nil {
			t.Errorf("outlets %q are %v", bad, got)
		}
	}
}

func TestRedfish(t *testing.T) {
	const chassis = "/redfish/v1/Chassis"
	for name, c := range map[string]struct {
		pages map[string]string
		at    string
		watts float64
	}{
		"a chassis with environment metrics": {map[string]string{
			chassis:                           `{"Members":[{"@odata.id":"/redfish/v1/Chassis/1"}]}`,
			chassis + "/1":                    `{"EnvironmentMetrics":{"@odata.id":"/redfish/v1/Chassis/1/EnvironmentMetrics"},"Power":{"@odata.id":"/redfish/v1/Chassis/1/Power"}}`,
			chassis + "/1/EnvironmentMetrics": `{"PowerWatts":{"Reading":374.5},"TemperatureCelsius":{"Reading":30}}`,
		}, "", 374.5},
		"an older one, after one without power": {map[string]string{
			chassis:                `{"Members":[{"@odata.id":"/redfish/v1/Chassis/Enclosure"},{"@odata.id":"/redfish/v1/Chassis/1"}]}`,
			chassis + "/Enclosure": `{}`,
			chassis + "/1":         `{"Power":{"@odata.id":"/redfish/v1/Chassis/1/Power"}}`,
			chassis + "/1/Power":   `{"PowerControl":[{"Name":"System Power Control","PowerConsumedWatts":344},{"Name":"CPU","PowerConsumedWatts":120}]}`,
		}, "", 344},
		"one that was named": {map[string]string{
			chassis + "/2":       `{"Power":{"@odata.id":"/redfish/v1/Chassis/2/Power"}}`,
			chassis + "/2/Power": `{"PowerControl":[{"PowerConsumedWatts":80}]}`,
		}, chassis + "/2", 80},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, c.pages)
			r := NewRedfish(s.URL+c.at, "reader", "secret", s.Client())
			for range 2 {
				if got, err := r.Power(t.Context()); err != nil || got.Watts() != c.watts {
					t.Errorf("%g W, error %v; want %g", got.Watts(), err, c.watts)
				}
			}
		})
	}
	s := serve(t, map[string]string{chassis: `{"Members":[{"@odata.id":"/redfish/v1/Chassis/1"}]}`, chassis + "/1": `{}`})
	if _, err := NewRedfish(s.URL, "reader", "secret", s.Client()).Power(t.Context()); err == nil || !strings.Contains(err.Error(), "no chassis reports it") {
		t.Errorf("error %v", err)
	}
	if _, err := NewRedfish(s.URL, "reader", "wrong", s.Client()).Power(t.Context()); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("error %v", err)
	}
}

// TestPasswordsAreNotLogged uses addresses with a password in all the ways that fail: the errors of a meter are
// logged and published.
func TestPasswordsAreNotLogged(t *testing.T) {
	s := serve(t, map[string]string{"/statusjsn.js?components=16384": "{}", "/redfish/v1/Chassis/1": "no JSON", "/redfish/v1/Chassis/2": "{}"})
	with := strings.Replace(s.URL, "http://", "http://reader:secret@", 1)
	for name, gauge := range map[string]Gauge{
		"a page without outlets":          NewPDU(with, []int{0}, s.Client()),
		"a page that is not there":        NewPDU(with+"/absent", []int{0}, s.Client()),
		"a PDU that does not answer":      NewPDU("http://reader:secret@127.0.0.1:0", []int{0}, s.Client()),
		"an address that is none":         NewPDU("http://reader:secret@%zz", []int{0}, s.Client()),
		"a chassis that is no JSON":       NewRedfish(with+"/redfish/v1/Chassis/1", "", "", s.Client()),
		"a chassis that reports no power": NewRedfish(with+"/redfish/v1/Chassis/2", "", "", s.Client()),
	} {
		if _, err := gauge.Power(t.Context()); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestPowerBeyondReason(t *testing.T) {
	for _, w := range []float64{-1, 2e6} {
		if got, err := watts(w); err == nil {
			t.Errorf("%g W are taken as %d uW", w, got)
		}
	}
}

// TestRunPolls follows a real service for a second.
func TestRunPolls(t *testing.T) {
	page := `{"sensor_values":[{},{"values":[[{},{},{},{},{"v":100}]]}]}`
	s := serve(t, map[string]string{"/statusjsn.js?components=16384": page})
	m := New("pdu", NewPDU(s.URL, []int{0}, s.Client()), 10*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	var running conc.WaitGroup
	running.Go(func() { _ = m.Run(ctx) })
	var energy unit.Energy
	var covered time.Duration
	for covered < 100*time.Millisecond && t.Context().Err() == nil {
		spent, err := m.Read(0)
		if err != nil {
			continue // it has not been polled yet
		}
		energy, covered = energy+spent[0].Energy, covered+*spent[0].Covered
	}
	cancel()
	running.Wait()
	if got := energy.Joules() / covered.Seconds(); got < 99.9 || got > 100.1 {
		t.Errorf("%g W over %s, want 100", got, covered)
	}
}

func FuzzPDU(f *testing.F) {
	f.Add([]byte(`{"sensor_values":[{},{"values":[[{},{},{},{},{"v":100}]]}]}`))
	f.Add([]byte(`{"sensor_values":[{},{"values":[[0,0,0,0,{"v":"1e400"}]]}]}`))
	f.Fuzz(func(t *testing.T, page []byte) {
		p := PDU{outlets: []int{0}}
		if power, err := p.parse(page); err == nil && (power < 0 || power.Watts() > 1e6) {
			t.Errorf("%g W of %q", power.Watts(), page)
		}
	})
}
