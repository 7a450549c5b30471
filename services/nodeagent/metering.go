package nodeagent

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/meter"
	"github.com/switchyard-dl/switchyard/services/nodeagent/pcm"
	"github.com/switchyard-dl/switchyard/services/nodeagent/perf"
	"github.com/switchyard-dl/switchyard/services/nodeagent/rapl"
	"github.com/switchyard-dl/switchyard/services/nodeagent/wall"
)

// metering is what the operator says of meters. Maps are from the names of nodes, so that all nodes can have the same settings; a node that a map does not name
// has no such meter.
type metering struct {
	interval             time.Duration
	idleWatts, coreWatts float64
	raplRoot             string
	name                 string

	pduURL      string
	pduOutlets  map[string]string
	pduInterval time.Duration

	pcmLogs map[string]string

	redfishURLs         map[string]string
	redfishUser         string
	redfishPasswordFile string
	redfishInsecure     bool
	redfishInterval     time.Duration

	perfEvents string
}

// The choices of --perf-events.
const (
	perfAuto = "auto"
	perfOff  = "off"
)

func (m *metering) flags(fs *pflag.FlagSet) {
	fs.DurationVar(&m.interval, "meter-interval", time.Second, "how often energy is measured")
	fs.Float64Var(&m.idleWatts, "model-idle-watts", 10, "assumed power of the idle machine, where it cannot be measured")
	fs.Float64Var(&m.coreWatts, "model-core-watts", 6, "assumed power of each busy core, where it cannot be measured")
	fs.StringVar(&m.raplRoot, "rapl-root", rapl.DefaultRoot, "where Linux shows the energy counters of processors")
	fs.StringVar(&m.name, "meter-name", "", "this node's name in the maps of meters below (default: the host's name; on Kubernetes that of the node)")
	fs.StringVar(&m.pduURL, "pdu-url", "", "address of a PDU whose outlets feed nodes, for example http://pdu-address")
	fs.StringToStringVar(&m.pduOutlets, "pdu-outlets", nil, "NODE=OUTLETS: the outlets of the PDU that feed a node, from 0 on, added up as in 3+4 (repeatable)")
	fs.DurationVar(&m.pduInterval, "pdu-interval", time.Second, "how often the PDU is asked")
	fs.StringToStringVar(&m.pcmLogs, "pcm-log", nil, "NODE=FILE: log that `pcm.x /csv` writes on a node, followed for the energy of its processors where RAPL cannot be read (repeatable)")
	fs.StringToStringVar(&m.redfishURLs, "redfish-url", nil, "NODE=URL: Redfish service of a node, or one chassis of it, for the power of the whole node (repeatable)")
	fs.StringVar(&m.redfishUser, "redfish-user", "", "user of the Redfish services")
	fs.StringVar(&m.redfishPasswordFile, "redfish-password-file", "", "file with the password of that user")
	fs.BoolVar(&m.redfishInsecure, "redfish-insecure", false, "take any certificate of the Redfish services")
	fs.DurationVar(&m.redfishInterval, "redfish-interval", 5*time.Second, "how often the Redfish service is asked")
	fs.StringVar(&m.perfEvents, "perf-events", perfAuto, "count hardware events, or software events where there are none, while jobs run: auto (where this is allowed) or off")
}

// validate names every wrong setting.
func (m *metering) validate() []error {
	var errs []error
	for flag, interval := range map[string]time.Duration{"meter-interval": m.interval, "pdu-interval": m.pduInterval, "redfish-interval": m.redfishInterval} {
		if interval < 50*time.Millisecond || interval > time.Minute {
			errs = append(errs, fmt.Errorf("--%s %s: want 50ms to 1m", flag, interval))
		}
	}
	for flag, watts := range map[string]float64{"model-idle-watts": m.idleWatts, "model-core-watts": m.coreWatts} {
		const most = 100_000
		if !(watts >= 0 && watts <= most) {
			errs = append(errs, fmt.Errorf("--%s %g: want 0 to %d", flag, watts, most))
		}
	}
	if m.pduURL != "" {
		errs = append(errs, wantURL("pdu-url", m.pduURL))
	}
	if (m.pduURL == "") != (len(m.pduOutlets) == 0) {
		errs = append(errs, errors.New("--pdu-url and --pdu-outlets go together"))
	}
	for _, node := range slices.Sorted(maps.Keys(m.pduOutlets)) {
		if _, err := wall.ParseOutlets(m.pduOutlets[node]); err != nil {
			errs = append(errs, fmt.Errorf("--pdu-outlets %s: %w", node, err))
		}
	}
	for _, node := range slices.Sorted(maps.Keys(m.redfishURLs)) {
		errs = append(errs, wantURL("redfish-url "+node, m.redfishURLs[node]))
	}
	if m.perfEvents != perfAuto && m.perfEvents != perfOff {
		errs = append(errs, fmt.Errorf("--perf-events %q: want %s or %s", m.perfEvents, perfAuto, perfOff))
	}
	return errs
}

// wantURL does not repeat what it was given: there may be a password in it.
func wantURL(flag, text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("--%s: want http://ADDRESS or https://ADDRESS", flag)
	}
	return nil
}

// model is the assumed power of the machine.
func (m *metering) model() meter.Model {
	return meter.Model{Idle: unit.Watts(m.idleWatts), Core: unit.Watts(m.coreWatts)}
}

// sources opens the meters of the machine in the order in which they are believed, and gives the loops of those that ask over the network.
func (m *metering) sources(p run.Process, kubernetesNode string) (sources []meter.Source, loops []func(context.Context) error, err error) {
	name := cmp.Or(m.name, kubernetesNode)
	if name == "" {
		if name, err = os.Hostname(); err != nil {
			return nil, nil, fmt.Errorf("find the host's name for --pdu-outlets, --pcm-log and --redfish-url: %w", err)
		}
	}
	counters, err := rapl.Open(os.DirFS(m.raplRoot))
	if err != nil {
		p.Log.Warn("energy counters not found", "error", err)
	}
	if counters != nil {
		sources = append(sources, counters)
	}
	if path, here := m.pcmLogs[name]; here {
		sources = append(sources, pcm.Open(path))
	}
	ask := func(method string, gauge wall.Gauge, interval time.Duration) {
		w := wall.New(method, gauge, interval)
		sources, loops = append(sources, w), append(loops, w.Run)
	}
	if text, here := m.pduOutlets[name]; here {
		outlets, err := wall.ParseOutlets(text)
		if err != nil {
			return nil, nil, err
		}
		ask("pdu", wall.NewPDU(m.pduURL, outlets, &http.Client{}), m.pduInterval)
	}
	if address, here := m.redfishURLs[name]; here {
		gauge, err := m.redfish(address)
		if err != nil {
			return nil, nil, err
		}
		ask("redfish", gauge, m.redfishInterval)
	}
	return sources, loops, nil
}

func (m *metering) redfish(address string) (wall.Gauge, error) {
	password := ""
	if m.redfishPasswordFile != "" {
		text, err := os.ReadFile(m.redfishPasswordFile)
		if err != nil {
			return nil, fmt.Errorf("read --redfish-password-file: %w", err)
		}
		password = strings.TrimSpace(string(text))
	}
	client := &http.Client{}
	if m.redfishInsecure { // the boards of servers mostly come with a certificate that nobody signed
		client.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}}
	}
	return wall.NewRedfish(address, m.redfishUser, password, client), nil
}

// events opens the performance counters; nil where none may be counted.
func (m *metering) events(p run.Process) meter.Events {
	if m.perfEvents == perfOff {
		return nil
	}
	counters, err := perf.Open()
	if err != nil {
		p.Log.Info("no performance counters", "reason", err)
		return nil
	}
	return counters
}
