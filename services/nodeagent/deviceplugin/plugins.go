package deviceplugin

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// Config says where the kubelet is.
type Config struct {
	// Dir is the folder for sockets: the one where the kubelet watches for plugins (plugins_registry), or with
	// Classic the one where plugins register with it (device-plugins). The kubelet must see it under the same name.
	Dir     string
	Classic bool
	// Dev is where device nodes are: /dev, except in tests.
	Dev string
	// MPSDir returns where processes reach the daemon of NVIDIA's Multi-Process Service; empty while none runs. It
	// may be nil.
	MPSDir func() string
	// Every is the interval at which GPUs and sockets are checked.
	Every   time.Duration
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Plugins is the device plugins of a node.
type Plugins struct {
	config  Config
	plugins map[string]*plugin
	healthy *prometheus.GaugeVec
}

// New makes plugins without GPUs.
func New(c Config) *Plugins {
	return &Plugins{config: c, plugins: map[string]*plugin{}, healthy: promauto.With(c.Metrics).NewGaugeVec(prometheus.GaugeOpts{
		Name: "switchyard_nodeagent_gpu_healthy", Help: "1 where new work may be put on the GPU, 0 where it is in trouble.",
	}, []string{"device", "resource"})}
}

// Run serves the GPUs that gpus lists until ctx ends. A GPU that is no longer listed counts as failing, because pods
// may be using it.
func (f *Plugins) Run(ctx context.Context, gpus func() []gpu.Device) error {
	if err := os.MkdirAll(f.config.Dir, 0o750); err != nil {
		return fmt.Errorf("make the folder of device plugins: %w", err)
	}
	serving := pool.New().WithContext(ctx)
	swept := false
	for ctx.Err() == nil {
		listed := gpus()
		for _, p := range f.update(listed) {
			serving.Go(func(ctx context.Context) error {
				p.serve(ctx, f.config.Classic, f.config.Every)
				return nil
			})
		}
		if len(listed) > 0 && !swept {
			f.sweep()
			swept = true
		}
		tick.Pause(ctx, f.config.Every)
	}
	return serving.Wait()
}

// update applies the present GPUs and returns the plugins of new ones.
func (f *Plugins) update(listed []gpu.Device) []*plugin {
	var fresh []*plugin
	seen := map[string]bool{}
	for _, g := range listed {
		seen[g.UUID] = true
		p, known := f.plugins[g.UUID]
		if !known {
			p = newPlugin(g, f.config, filepath.Join(f.config.Dir, socketName(g.UUID)))
			f.plugins[g.UUID] = p
			fresh = append(fresh, p)
		}
		p.update(g)
	}
	for uuid, p := range f.plugins {
		g, _ := p.now()
		if !seen[uuid] {
			g.Trouble = "it is no longer there"
			p.update(g)
		}
		healthy := 1.0
		if g.Trouble != "" {
			healthy = 0
		}
		f.healthy.WithLabelValues(string(g.ID()), Resource(uuid)).Set(healthy)
	}
	return fresh
}

// sweep removes the sockets of GPUs that were removed while no agent ran: a kubelet would keep connecting to them.
func (f *Plugins) sweep() {
	left, _ := filepath.Glob(filepath.Join(f.config.Dir, socketPrefix+"*"+socketSuffix)) // the pattern is well-formed
	mine := map[string]bool{}
	for uuid := range f.plugins {
		mine[socketName(uuid)] = true
	}
	for _, path := range left {
		if !mine[filepath.Base(path)] {
			if err := os.Remove(path); err != nil {
				f.config.Log.Warn("old socket not removed", "error", err)
			}
		}
	}
}
