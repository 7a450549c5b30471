package deviceplugin

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// Config says where the kubelet is.
type Config struct {
	// Dir is the folder for sockets: the one where the kubelet watches for plugins (plugins_registry), or with Classic the one where it is told of them
	// (device-plugins). The kubelet must see it under the same name.
	Dir     string
	Classic bool
	// Dev is where device nodes are: /dev, but in tests.
	Dev string
	// MPSDir is where processes reach the daemon of NVIDIA's Multi-Process Service; empty while none runs. Nil where nobody looks for one.
	MPSDir func() string
	// Every is how often GPUs and sockets are looked at.
	Every   time.Duration
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Fleet is the device plugins of a node.
type Fleet struct {
	config  Config
	plugins map[string]*plugin
	well    *prometheus.GaugeVec
}

// New makes a fleet without GPUs.
func New(c Config) *Fleet {
	f := &Fleet{config: c, plugins: map[string]*plugin{}, well: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "switchyard_nodeagent_gpu_healthy", Help: "1 where new work may be put on the GPU, 0 where it is in trouble.",
	}, []string{"device", "resource"})}
	c.Metrics.MustRegister(f.well)
	return f
}

// Account says under which resource the kubelet accounts for a GPU, and in how many units.
func (f *Fleet) Account(g gpu.Device) (resource string, units int) {
	return Resource(g.UUID), Units(g.Memory)
}

// Run serves the GPUs that gpus lists until ctx ends. One that is no longer listed is in trouble, for pods may be using it.
func (f *Fleet) Run(ctx context.Context, gpus func() []gpu.Device) error {
	if err := os.MkdirAll(f.config.Dir, 0o750); err != nil {
		return fmt.Errorf("make the folder of device plugins: %w", err)
	}
	serving := pool.New().WithContext(ctx)
	swept := false
	for ctx.Err() == nil {
		listed := gpus()
		for _, p := range f.look(listed) {
			serving.Go(func(ctx context.Context) error {
				p.serve(ctx, f.config.Classic, f.config.Every)
				return nil
			})
		}
		if len(listed) > 0 && !swept {
			f.sweep()
			swept = true
		}
		pause(ctx, f.config.Every)
	}
	return serving.Wait()
}

// look takes the GPUs as they are now and gives the plugins of those that are new.
func (f *Fleet) look(listed []gpu.Device) []*plugin {
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
		well := 1.0
		if g.Trouble != "" {
			well = 0
		}
		f.well.WithLabelValues(string(g.ID()), Resource(uuid)).Set(well)
	}
	return fresh
}

// sweep removes the sockets of GPUs that were taken out while no agent ran: a kubelet would go on knocking at them.
func (f *Fleet) sweep() {
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
