package netrole

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/profiler/linkhealth"
)

// Verdict is what the diagnoser answers at /links.
type Verdict struct {
	// Slot is the last slot that was judged; 0 before the first.
	Slot int64 `json:"slot"`
	// Links are those that lose or delay packets.
	Links []train.Link `json:"links"`
	// Ailing are the servers whose probes do not count, and the reasons.
	Ailing []train.UnhealthyNode `json:"ailing,omitempty"`
}

// diagnoser judges what pingers and responders post.
type diagnoser struct {
	config Config
	log    *slog.Logger
	client http.Client
	// servers are those of the configuration, by name.
	servers map[train.NodeID]bool

	mu      sync.Mutex
	watch   *linkhealth.Watch
	verdict Verdict
}

func newDiagnoser(c Config, log *slog.Logger) *diagnoser {
	return &diagnoser{
		config: c, log: log, client: http.Client{Timeout: 5 * time.Second}, servers: c.names(), watch: linkhealth.New(),
		verdict: Verdict{Links: []train.Link{}},
	}
}

func (d *diagnoser) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /counts", d.counted)
	mux.HandleFunc("GET /links", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, &d.mu, func() any { return d.verdict })
	})
	return mux
}

// Diagnose judges until ctx ends. It calls ready with its address.
func Diagnose(ctx context.Context, c Config, log *slog.Logger, ready func(net.Addr)) error {
	d := newDiagnoser(c, log)
	work := pool.New().WithContext(ctx).WithCancelOnError()
	work.Go(func(ctx context.Context) error { return run.ServeHTTP(ctx, c.Diagnoser, d.handler(), ready) })
	work.Go(d.follow)
	work.Go(d.judge)
	return work.Wait()
}

func (d *diagnoser) counted(w http.ResponseWriter, r *http.Request) {
	var in reported
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostBody)).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !d.servers[in.Node] {
		refuseStranger(w)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watch.Counted(in.Node, in.ProbesCounted, time.Now())
}

// follow copies the controller's lists.
func (d *diagnoser) follow(ctx context.Context) error {
	for wait := time.Duration(0); tick.Pause(ctx, wait); wait = train.ProbeSlot / 2 {
		lists, err := get[map[train.NodeID]train.Pinglist](ctx, &d.client, "http://"+d.config.Controller+"/pinglists")
		if err != nil {
			d.log.Warn("lists are not there yet", "error", err)
			continue
		}
		d.mu.Lock()
		for node, list := range lists {
			d.watch.Use(node, &list)
		}
		d.mu.Unlock()
	}
	return nil
}

func (d *diagnoser) judge(ctx context.Context) error {
	for tick.Pause(ctx, 500*time.Millisecond) {
		d.mu.Lock()
		turns, slot, judged := d.watch.Next(time.Now())
		if judged {
			d.verdict = Verdict{Slot: slot, Links: []train.Link{}, Ailing: d.watch.Unhealthy(slot)}
		}
		for _, t := range turns {
			if t.Link.Degraded {
				d.verdict.Links = append(d.verdict.Links, t.Link)
			}
			if t.Changed {
				d.log.Info("link has turned", "link", t.Link.ID, "degraded", t.Link.Degraded, "trouble", t.Link.Trouble(), "confidence", t.Link.Confidence)
			}
		}
		d.mu.Unlock()
	}
	return nil
}
