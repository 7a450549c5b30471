// Package nodeagent is a node's hands and eyes: it says what the node has to offer, measures what it spends, and speaks with training code. It decides
// nothing about jobs.
package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/sourcegraph/conc/pool"
	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
	"github.com/switchyard-dl/switchyard/services/nodeagent/inventory"
	"github.com/switchyard-dl/switchyard/services/nodeagent/jobapi"
	"github.com/switchyard-dl/switchyard/services/nodeagent/meter"
	"github.com/switchyard-dl/switchyard/services/nodeagent/mps"
	"github.com/switchyard-dl/switchyard/services/nodeagent/nvml"
	"github.com/switchyard-dl/switchyard/services/nodeagent/outbox"
	"github.com/switchyard-dl/switchyard/services/nodeagent/roster"
	"github.com/switchyard-dl/switchyard/services/nodeagent/simgpu"
)

// Service is the node agent.
type Service struct {
	jobAPI       string
	deviceKind   string
	cpuSlots     int
	metering     metering
	simGPUs      int
	simGPUMemory int
	simGPUWatts  float64
	mpsDir       string
	labels       map[string]string
	kubernetes   kubernetes
	network      network
	// gpus are read instead of the machine's, where a test says so.
	gpus gpu.Reader
}

// New makes a node agent with its defaults.
func New() *Service { return &Service{} }

// Name is the service's name.
func (s *Service) Name() string { return "nodeagent" }

const anyPort = "127.0.0.1:0"

// Flags declares the service's flags.
func (s *Service) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&s.jobAPI, "job-api", anyPort, "address of the job API: loopback, or the node's own where jobs are pods (port 0: a free one, kept over restarts)")
	fs.StringVar(&s.deviceKind, "device-kind", inventory.KindAuto, "what to offer as devices: gpu, cpu, or auto (GPUs where there are some, else CPU slots)")
	fs.IntVar(&s.cpuSlots, "cpu-slots", 0, "number of CPU slots to offer (0: one per core)")
	s.metering.flags(fs)
	fs.IntVar(&s.simGPUs, "sim-gpus", 0, "number of simulated GPUs to offer instead of real ones; jobs on them run on processors")
	fs.IntVar(&s.simGPUMemory, "sim-gpu-memory", 16, "memory of a simulated GPU, in GiB")
	fs.Float64Var(&s.simGPUWatts, "sim-gpu-watts", 0, "what a simulated GPU in use is taken to draw, up to its power limit (0: nothing beside the processors)")
	fs.StringVar(&s.mpsDir, "mps-pipe-directory", "", "folder in which the daemon of NVIDIA's Multi-Process Service has its pipes (default: CUDA_MPS_PIPE_DIRECTORY, else /tmp/nvidia-mps)")
	fs.StringToStringVar(&s.labels, "label", nil, "NAME=VALUE: label of the node, for jobs that ask for it with node_labels (repeatable); on Kubernetes those of the node hold instead")
	s.kubernetes.flags(fs)
	s.network.flags(fs)
}

// Validate names every wrong setting at once.
func (s *Service) Validate(common run.Common) error {
	errs := []error{s.kubernetes.validate(common)}
	if err := s.kubernetes.validateJobAPI(s.jobAPI); err != nil {
		errs = append(errs, err)
	} else if _, port, _ := net.SplitHostPort(s.jobAPI); !isPort(port) {
		errs = append(errs, fmt.Errorf("--job-api %q: port %s: want 0 to 65535", s.jobAPI, port))
	}
	for _, key := range slices.Sorted(maps.Keys(s.labels)) {
		if !train.IsLabel(key, s.labels[key]) {
			errs = append(errs, fmt.Errorf("--label %s=%s: want letters, digits, '-', '_' and '.'", key, s.labels[key]))
		}
	}
	const mostGPUs, mostGiB = 64, 1024
	if s.simGPUs < 0 || s.simGPUs > mostGPUs {
		errs = append(errs, fmt.Errorf("--sim-gpus %d: want 0 to %d", s.simGPUs, mostGPUs))
	}
	if s.simGPUMemory < 1 || s.simGPUMemory > mostGiB {
		errs = append(errs, fmt.Errorf("--sim-gpu-memory %d: want 1 to %d GiB", s.simGPUMemory, mostGiB))
	}
	const mostWatts = 10_000
	if !(s.simGPUWatts >= 0 && s.simGPUWatts <= mostWatts) {
		errs = append(errs, fmt.Errorf("--sim-gpu-watts %v: want 0 to %d", s.simGPUWatts, mostWatts))
	}
	if s.mpsDir != "" && !filepath.IsAbs(s.mpsDir) {
		errs = append(errs, fmt.Errorf("--mps-pipe-directory %q: want an absolute path", s.mpsDir))
	}
	switch s.deviceKind {
	case inventory.KindAuto, inventory.KindGPU, inventory.KindCPU:
	default:
		errs = append(errs, fmt.Errorf("--device-kind %q: want auto, gpu or cpu", s.deviceKind))
	}
	const mostSlots = 4096
	if s.cpuSlots < 0 || s.cpuSlots > mostSlots {
		errs = append(errs, fmt.Errorf("--cpu-slots %d: want 0 to %d", s.cpuSlots, mostSlots))
	}
	errs = append(errs, s.network.validate()...)
	return errors.Join(append(errs, s.metering.validate()...)...)
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

// outboxLimit bounds the facts on disk; one is at most as large as a request.
const outboxLimit = 10_000

// Run works until ctx ends.
func (s *Service) Run(ctx context.Context, p run.Process) error {
	var err error
	if p.Common, err = s.settle(p.Common); err != nil {
		return err
	}
	dir := filepath.Join(p.Common.DataDir, "nodeagent")
	unlock, err := run.Lock(ctx, filepath.Join(dir, "lock"), func() {
		p.Log.Warn("another node agent uses the data folder: waiting for its end", "folder", dir)
	})
	if err != nil || ctx.Err() != nil {
		return err
	}
	defer unlock()
	if err := s.kubernetes.makeSnapshots(p.Common.DataDir); err != nil {
		return err
	}
	b, err := p.Connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	return s.serve(ctx, p, dir, b)
}

// serve does the agent's work in a folder that no other one uses.
func (s *Service) serve(ctx context.Context, p run.Process, dir string, b *bus.Bus) error {
	t, err := openTables(ctx, b)
	if err != nil {
		return err
	}
	box, err := outbox.Open(filepath.Join(dir, "outbox"), outboxLimit, p.Log)
	if err != nil {
		return err
	}
	known := roster.New(t.attempts)
	live := func() []train.Attempt { return known.Live(p.Common.NodeID()) }
	reserved := newReservations(p.Common.NodeID(), live, b.Publish, p.Log)
	daemon := mps.Find(s.mpsDir)
	accounts := s.kubernetes.accountant(daemon, p.Log, p.Metrics)
	opened, err := s.open(p, known, accounts, reserved, daemon)
	if err != nil {
		return err
	}
	defer opened.close()
	doors, err := openDoors(ctx, dir, s.jobAPI, p.Log)
	if err != nil {
		return err
	}
	defer doors.close()
	wanted := newWishes()
	batches := newTunings(wanted, time.Now)
	api := jobapi.New(jobapi.Config{
		Node: p.Common.NodeID(), Bus: b, Reports: t.reports, Roster: known, Outbox: box, EpochEnded: opened.recorder.Mark,
		UsesMemory: reserved.reported, Tuned: batches.of, BatchesSince: batches.since, Paused: wanted.holds, Log: p.Log, Metrics: p.Metrics,
	})
	limits, err := newPowerLimits(dir, opened.gpus, opened.meter.Devices, live, wanted.watts, p.Log)
	if err != nil {
		return err
	}
	links, err := s.network.open(ctx, p, b)
	if err != nil {
		return err
	}
	describe := links.describe(s.kubernetes.describe(s.describe(p.Common.NodeID(), opened, doors, limits), p.Log))
	work := pool.New().WithContext(ctx).WithCancelOnError()
	synced := newSignal()
	work.Go(func(ctx context.Context) error { return t.attempts.Watch(ctx, known.Put, synced.set) })
	work.Go(func(ctx context.Context) error { return t.tunings.Watch(ctx, batches.see, func() {}) })
	work.Go(func(ctx context.Context) error { return t.settings.Watch(ctx, wanted.see, wanted.synced.set) })
	work.Go(func(ctx context.Context) error { return box.Run(ctx, api.DeliverKept) })
	work.Go(api.RunHeartbeats)
	work.Go(func(ctx context.Context) error { return bus.ForgetEnded(ctx, t.reports, t.jobs) })
	// Nobody is told of the job API, nor is anything measured, before it is known which attempts there are.
	work.Go(synced.then(func(ctx context.Context) error { return announce(ctx, t.nodes, describe, p) }))
	work.Go(synced.then(func(ctx context.Context) error { return record(ctx, opened.recorder, b) }))
	work.Go(synced.then(func(ctx context.Context) error { return reserved.run(ctx, opened.meter.Devices) }))
	for _, loop := range s.kubernetes.logLoops(p, known.Newest, api, b, t.jobs) {
		work.Go(synced.then(loop))
	}
	for _, loop := range slices.Concat(doors.loops(api.Handler()), opened.loops, links.loops(), limits.loops(t.limits, synced)) {
		work.Go(loop)
	}
	return work.Wait()
}

// describe makes what tells of the node.
func (s *Service) describe(node train.NodeID, o opened, d doors, limits *powerLimits) func(context.Context, time.Time) train.Node {
	return func(ctx context.Context, now time.Time) train.Node {
		n := o.machine.Node(ctx, node, o.meter.Devices(), now)
		limits.describe(n.Devices)
		n.Labels = s.labels
		n.JobAPI, n.JobAPISocket = d.tcp.Addr().String(), d.socket
		n.Meters, n.MeterTroubles = metersOf(o.meter.Statuses())
		return n
	}
}

// settle gives the settings with the id of this machine. That of a node of Kubernetes is said there, and the folder need not remember it.
func (s *Service) settle(c run.Common) (run.Common, error) {
	if s.kubernetes.on() {
		c.Node = string(train.KubernetesNodeID(s.kubernetes.node))
		return c, nil
	}
	return run.SettleNode(c)
}

// tables are the buckets that the agent uses.
type tables struct {
	attempts *bus.KV[train.Attempt]
	reports  *bus.KV[train.AttemptReport]
	nodes    *bus.KV[train.Node]
	jobs     *bus.KV[train.Job]
	limits   *bus.KV[train.PowerLimit]
	tunings  *bus.KV[train.Tuning]
	settings *bus.KV[train.Setting]
}

func openTables(ctx context.Context, b *bus.Bus) (tables, error) {
	var t tables
	var errs [7]error
	t.attempts, errs[0] = bus.OpenKV[train.Attempt](ctx, b, event.BucketAttempts)
	t.reports, errs[1] = bus.OpenKV[train.AttemptReport](ctx, b, event.BucketReports)
	t.nodes, errs[2] = bus.OpenKV[train.Node](ctx, b, event.BucketNodes)
	t.jobs, errs[3] = bus.OpenKV[train.Job](ctx, b, event.BucketJobs)
	t.limits, errs[4] = bus.OpenKV[train.PowerLimit](ctx, b, event.BucketPowerLimits)
	t.tunings, errs[5] = bus.OpenKV[train.Tuning](ctx, b, event.BucketTunings)
	t.settings, errs[6] = bus.OpenKV[train.Setting](ctx, b, event.BucketSettings)
	return t, errors.Join(errs[:]...)
}

// opened is what the machine has, ready to be read.
type opened struct {
	machine  *inventory.Inventory
	gpus     gpu.Reader // nil where there are none
	meter    *meter.Meter
	recorder *meter.Recorder
	// loops ask the meters that are reached over the network, and offer the GPUs to a kubelet.
	loops []func(context.Context) error
	close func()
}

// open makes the meter and the inventory from what the machine has.
func (s *Service) open(p run.Process, known *roster.Roster, accounts accountant, reserved *reservations, daemon *mps.Daemon) (opened, error) {
	const root, cgroups = proc.Root("/proc"), "/sys/fs/cgroup"
	offered := inventory.Config{Kind: s.deviceKind, Slots: s.cpuSlots, Proc: root, Cgroups: cgroups, MPS: daemon}
	if accounts != nil {
		offered.Account, offered.Cgroups = accounts.Account, ""
	}
	machine, err := inventory.New(offered)
	if err != nil {
		return opened{}, err
	}
	sources, loops, err := s.metering.sources(p, s.kubernetes.node)
	if err != nil {
		return opened{}, err
	}
	gpus, closeGPUs := s.openGPUs(p, known)
	m, err := meter.New(meter.Config{
		Proc: root, Cgroups: cgroups, Sources: sources, GPUs: gpus, Events: s.metering.events(p), Model: s.metering.model(), Log: p.Log,
	})
	if err != nil {
		closeGPUs()
		return opened{}, err
	}
	if accounts != nil {
		loops = append(loops, func(ctx context.Context) error { return accounts.Run(ctx, m.Devices) })
	}
	node := p.Common.NodeID()
	recorder := meter.NewRecorder(meter.RecorderConfig{
		// The numbers of intervals begin anew with every start of the agent.
		Node: node, Boot: machine.BootID() + "-" + strconv.FormatInt(time.Now().UnixNano(), 36), Interval: s.metering.interval,
		Meter: m, Live: reserved.live, Used: reserved.measured, Log: p.Log, Metrics: p.Metrics,
	})
	return opened{machine, gpus, m, recorder, loops, closeGPUs}, nil
}

// metersOf gives the meters that work, and why the others do not.
func metersOf(statuses []meter.Status) (working []string, troubles map[string]string) {
	for _, s := range statuses {
		if s.Trouble == "" {
			working = append(working, s.Method)
			continue
		}
		if troubles == nil {
			troubles = map[string]string{}
		}
		troubles[s.Method] = s.Trouble
	}
	return working, troubles
}

// openGPUs gives what reads GPUs, nil where there are none, and what closes it.
func (s *Service) openGPUs(p run.Process, known *roster.Roster) (gpu.Reader, func()) {
	if s.gpus != nil {
		return s.gpus, func() {}
	}
	if s.simGPUs > 0 {
		node := p.Common.NodeID()
		return simgpu.Reader{
			Node: node, Count: s.simGPUs, Memory: unit.Bytes(s.simGPUMemory) * unit.GiB,
			Sick:   filepath.Join(p.Common.DataDir, "nodeagent", "sick-gpus"),
			Limits: filepath.Join(p.Common.DataDir, "nodeagent", "sim-gpu-limits"),
			Draw:   unit.Watts(s.simGPUWatts),
			InUse: func(d train.DeviceID) bool {
				return slices.ContainsFunc(known.Live(node), func(a train.Attempt) bool { return slices.Contains(a.Devices, d) })
			},
		}, func() {}
	}
	library, err := nvml.Open()
	if err != nil {
		p.Log.Info("no GPUs", "reason", err)
		return nil, func() {}
	}
	return library, library.Close
}

// announceEvery is how often the node's entry is refreshed.
const announceEvery = 5 * time.Second

// announce keeps the node's entry fresh until ctx ends.
func announce(ctx context.Context, nodes *bus.KV[train.Node], describe func(context.Context, time.Time) train.Node, p run.Process) error {
	ticker := time.NewTicker(announceEvery)
	defer ticker.Stop()
	started := false
	for {
		if err := write(ctx, nodes, describe(ctx, time.Now().UTC())); err != nil && ctx.Err() == nil {
			p.Log.Warn("node not announced", "error", err)
		} else if err == nil && !started {
			started = true
			p.Started()
		}
		// Until it is known at all, it is tried more often.
		var soon <-chan time.Time
		if !started {
			soon = time.After(200 * time.Millisecond)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-soon:
		case <-ticker.C:
		}
	}
}

func write(ctx context.Context, nodes *bus.KV[train.Node], n train.Node) error {
	ctx, cancel := context.WithTimeout(ctx, announceEvery)
	defer cancel()
	_, err := nodes.Modify(ctx, string(n.ID), func(known *train.Node) (bool, error) {
		*known = n
		return true, nil
	})
	return err
}

// flushTimeout is how long a stop waits for the bus to take the last intervals.
const flushTimeout = 2 * time.Second

// record measures and publishes until ctx ends.
func record(ctx context.Context, r *meter.Recorder, b *bus.Bus) error {
	work := pool.New().WithContext(ctx).WithCancelOnError()
	work.Go(r.Measure)
	work.Go(func(ctx context.Context) error { return r.Publish(ctx, b) })
	err := work.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	if b.Ready() == nil {
		r.Flush(last, b)
	}
	return err
}
