package deviceplugin

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
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
	// Booked returns the GPU for the next pod of no job with that many GiB; it may wait for the answer.
	// If it is set, the memory of all GPUs is a resource of its own (train.PodMemoryResource).
	Booked func(ctx context.Context, gib int) (train.DeviceID, bool)
	// Every is the interval at which GPUs and sockets are checked.
	Every   time.Duration
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Plugins is the device plugins of a node.
type Plugins struct {
	config  Config
	plugins map[string]*plugin
	// memory offers the memory of all GPUs; nil if it is not offered.
	memory  *plugin
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

// update applies the present GPUs and returns the plugins of new resources.
func (f *Plugins) update(listed []gpu.Device) []*plugin {
	var fresh []*plugin
	present := map[string]gpu.Device{}
	for _, g := range listed {
		present[g.UUID] = g
		if f.plugins[g.UUID] == nil {
			f.plugins[g.UUID] = f.add(Resource(g.UUID), socketName(g.UUID), func(g gpu.Device) int { return Units(g.Memory) })
			fresh = append(fresh, f.plugins[g.UUID])
		}
	}
	for uuid, p := range f.plugins {
		if g, there := present[uuid]; there {
			p.update(g)
		} else {
			p.update()
		}
		gpus, _ := p.now()
		healthy := 1.0
		if gpus[0].Trouble != "" {
			healthy = 0
		}
		f.healthy.WithLabelValues(string(gpus[0].ID()), Resource(uuid)).Set(healthy)
	}
	if f.config.Booked == nil || len(listed) == 0 && f.memory == nil {
		return fresh
	}
	if f.memory == nil {
		f.memory = f.add(train.PodMemoryResource, memorySocket, func(g gpu.Device) int { return int(g.Memory / unit.GiB) })
		f.memory.booked = f.config.Booked
		fresh = append(fresh, f.memory)
	}
	f.memory.update(slices.DeleteFunc(slices.Clone(listed), func(g gpu.Device) bool { return g.Instance > 0 })...)
	return fresh
}

func (f *Plugins) add(resource, socket string, units func(gpu.Device) int) *plugin {
	return newPlugin(resource, units, f.config, filepath.Join(f.config.Dir, socket))
}

// sweep removes the sockets of GPUs that were removed while no agent ran: a kubelet would keep connecting to them.
func (f *Plugins) sweep() {
	left, _ := filepath.Glob(filepath.Join(f.config.Dir, socketPrefix+"*"+socketSuffix)) // the pattern is well-formed
	mine := map[string]bool{memorySocket: f.memory != nil}
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
