package netrole

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/nodeagent/netprobe"
)

// reported is the body of a report to the diagnoser. A pinger reports what it sent, a responder what it received; the
// other half is null.
type reported struct {
	Node train.NodeID `json:"node"`
	event.ProbesCounted
}

// agent is a pinger or a responder.
type agent struct {
	config Config
	node   train.NodeID
	// pings is set for a pinger.
	pings  bool
	prober *netprobe.Prober
	log    *slog.Logger
	client http.Client
}

// Pinger probes other servers from one until ctx ends.
func Pinger(ctx context.Context, c Config, host netip.Addr, log *slog.Logger) error {
	return runAgent(ctx, c, host, c.PingerPort, true, log)
}

// Responder answers probes on one server until ctx ends.
func Responder(ctx context.Context, c Config, host netip.Addr, log *slog.Logger) error {
	return runAgent(ctx, c, host, c.ResponderPort, false, log)
}

func runAgent(ctx context.Context, c Config, host netip.Addr, port int, pings bool, log *slog.Logger) error {
	const packetsPerProbe, bytesPerProbe = 6, 2000 // with its confirmations and the answers to those of others
	if !slices.Contains(c.Servers, host) {
		return fmt.Errorf("server %s is none of server_1.. of the configuration", host)
	}
	rate := float64(time.Second) / float64(c.Interval)
	p, err := netprobe.Open(ctx, netprobe.Config{
		Node: nodeOf(host), Listen: []netip.AddrPort{netip.AddrPortFrom(host, uint16(port))}, ProbesPerSecond: rate, ProbeBytes: 400,
		PacketsPerSecond: int(packetsPerProbe*rate) + packetsPerProbe, BytesPerSecond: int(bytesPerProbe*rate) + 4*bytesPerProbe,
	})
	if err != nil {
		return err
	}
	var registered []netip.AddrPort
	for _, s := range c.Servers {
		registered = append(registered, c.responder(s))
	}
	p.Register(registered)
	a := &agent{config: c, node: nodeOf(host), pings: pings, prober: p, log: log, client: http.Client{Timeout: 5 * time.Second}}
	work := pool.New().WithContext(ctx).WithCancelOnError()
	work.Go(p.Run)
	work.Go(a.fetch)
	work.Go(a.report)
	return work.Wait()
}

// fetch keeps the list up to date, and reports the paths of its flows when it has found them.
func (a *agent) fetch(ctx context.Context) error {
	traced, probes := 0, -1
	at := "http://" + a.config.Controller + "/pinglists/" + string(a.node)
	if a.pings {
		at += "?" + pingsQuery
	}
	for wait := time.Duration(0); tick.Pause(ctx, wait); {
		wait = a.config.Cycle
		list, err := get[train.Pinglist](ctx, &a.client, at)
		if err != nil {
			a.log.Warn("list is not there yet", "error", err)
			wait = min(wait, askAgain)
			continue
		}
		if !a.pings {
			list.Probes, list.Trace = nil, nil
		}
		if err := a.prober.Use(ctx, list, time.Now()); err != nil {
			a.log.Warn("some flows are not probed", "error", err)
		}
		if len(list.Probes) != probes {
			probes = len(list.Probes)
			a.log.Info("list has come", "probes", probes)
		}
		if a.pings && time.Duration(traced)*a.config.Cycle%traceEvery < a.config.Cycle {
			if found, whole := a.prober.Trace(ctx); whole {
				if err := post(ctx, &a.client, "http://"+a.config.Controller+"/paths", found); err != nil {
					a.log.Warn("paths are not told", "error", err)
				}
			}
		}
		traced++
	}
	return nil
}

// askAgain is the pause before a missing list is asked for again.
const askAgain = time.Second

// traceEvery is the time between two searches for paths.
const traceEvery = 10 * time.Minute

// report posts the counts, slot by slot.
func (a *agent) report(ctx context.Context) error {
	for tick.Pause(ctx, 500*time.Millisecond) {
		counts, over := a.prober.Report(time.Now())
		if !over {
			continue
		}
		r := reported{a.node, event.ProbesCounted(counts)}
		if a.pings {
			r.Received, r.Late = nil, nil
		} else {
			r.Sent = nil
		}
		if err := post(ctx, &a.client, "http://"+a.config.Diagnoser+"/counts", r); err != nil && ctx.Err() == nil {
			a.log.Warn("counts are lost", "slot", counts.Slot, "error", err)
		}
	}
	return nil
}

func get[T any](ctx context.Context, client *http.Client, url string) (T, error) {
	var v T
	err := call(ctx, client, http.MethodGet, url, nil, func(answer io.Reader) error { return json.NewDecoder(answer).Decode(&v) })
	return v, err
}

func post(ctx context.Context, client *http.Client, url string, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode for %s: %w", url, err)
	}
	return call(ctx, client, http.MethodPost, url, body, func(io.Reader) error { return nil })
}

func call(ctx context.Context, client *http.Client, method, url string, body []byte, read func(io.Reader) error) error {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask %s: %w", url, err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask %s: %w", url, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("ask %s: %s", url, answer.Status)
	}
	if err := read(answer.Body); err != nil {
		return fmt.Errorf("read %s: %w", url, err)
	}
	return nil
}
