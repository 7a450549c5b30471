package nodeagent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/perf"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/meter"
	"github.com/switchyard-dl/switchyard/services/nodeagent/pcm"
	"github.com/switchyard-dl/switchyard/services/nodeagent/powermeter"
	"github.com/switchyard-dl/switchyard/services/nodeagent/rapl"
)

// metering are the settings of meters.
type metering struct{ settings.Meters }

// validate checks what several settings must agree on.
func (m *metering) validate() error {
	if (m.PDUURL == "") != (len(m.PDUOutlets) == 0) {
		return errors.New("nodeagent.pdu_url and nodeagent.pdu_outlets go together")
	}
	return nil
}

// byName finds the entry of this node in a map: by its name in Kubernetes, its id, or the name of the host.
func byName(entries map[string]string, names []string) (string, bool) {
	for _, name := range names {
		if value, ok := entries[name]; ok && name != "" {
			return value, true
		}
	}
	return "", false
}

// model is the assumed power of the machine.
func (m *metering) model() meter.Model {
	return meter.Model{Idle: unit.Watts(m.ModelIdleWatts), Core: unit.Watts(m.ModelCoreWatts)}
}

// sources opens the meters of the machine, best first, and returns the loops of those that are polled over the
// network.
func (m *metering) sources(p run.Process, kubernetesNode string) (sources []meter.Source, loops []func(context.Context) error, err error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, nil, fmt.Errorf("find the host's name: %w", err)
	}
	names := []string{kubernetesNode, p.Common.Node, host}
	counters, err := rapl.Open(os.DirFS(m.RAPLRoot))
	if err != nil {
		p.Log.Warn("energy counters not found", "error", err)
	}
	if counters != nil {
		sources = append(sources, counters)
	}
	if path, here := byName(m.PCMLogs, names); here {
		sources = append(sources, pcm.Open(path))
	}
	ask := func(method string, gauge powermeter.Gauge, interval time.Duration) {
		w := powermeter.New(method, gauge, interval)
		sources, loops = append(sources, w), append(loops, w.Run)
	}
	if text, here := byName(m.PDUOutlets, names); here {
		outlets, err := powermeter.ParseOutlets(text)
		if err != nil {
			return nil, nil, err
		}
		ask("pdu", powermeter.NewPDU(m.PDUURL, outlets, &http.Client{}), m.PDUInterval)
	}
	if address, here := byName(m.RedfishURLs, names); here {
		gauge, err := m.redfish(address)
		if err != nil {
			return nil, nil, err
		}
		ask("redfish", gauge, m.RedfishInterval)
	}
	return sources, loops, nil
}

func (m *metering) redfish(address string) (powermeter.Gauge, error) {
	password := ""
	if m.RedfishPassword != "" {
		text, err := os.ReadFile(m.RedfishPassword)
		if err != nil {
			return nil, fmt.Errorf("read nodeagent.redfish_password_file: %w", err)
		}
		password = strings.TrimSpace(string(text))
	}
	client := &http.Client{}
	if m.RedfishInsecure { // servers' management controllers mostly have a self-signed certificate
		client.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}} //nolint:gosec // the operator asked for it: redfish_insecure
	}
	return powermeter.NewRedfish(address, m.RedfishUser, password, client), nil
}

// events opens the performance counters; it returns nil if counting is not allowed.
func (m *metering) events(p run.Process) meter.Events {
	if m.PerfEvents == settings.PerfOff {
		return nil
	}
	counters, err := perf.Open()
	if err != nil {
		p.Log.Info("no performance counters", "reason", err)
		return nil
	}
	return counters
}
