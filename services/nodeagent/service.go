// Package nodeagent describes what a node offers, measures what it uses, and serves training code. It decides nothing
// about jobs.
package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/build"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/disk"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/attemptindex"
	"github.com/switchyard-dl/switchyard/services/nodeagent/deviceplugin"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
	"github.com/switchyard-dl/switchyard/services/nodeagent/inventory"
	"github.com/switchyard-dl/switchyard/services/nodeagent/jobapi"
	"github.com/switchyard-dl/switchyard/services/nodeagent/meter"
	"github.com/switchyard-dl/switchyard/services/nodeagent/mps"
	"github.com/switchyard-dl/switchyard/services/nodeagent/nvml"
	"github.com/switchyard-dl/switchyard/services/nodeagent/outbox"
	"github.com/switchyard-dl/switchyard/services/nodeagent/simgpu"
)

// Service is the node agent.
type Service struct {
	config     settings.NodeAgent
	metering   metering
	kubernetes kubernetes
	network    network
	// gpus replace the machine's GPUs in tests.
	gpus gpu.Reader
}

// New makes a node agent.
func New(c settings.NodeAgent) *Service {
	return &Service{config: c, metering: metering{c.Meters}, kubernetes: kubernetes{c.Kubelet}, network: network{c.Probes}}
}

// Name returns the service's name.
func (s *Service) Name() string { return "nodeagent" }

// Validate checks the settings that must fit each other.
func (s *Service) Validate(common run.Common) error {
	errs := []error{s.kubernetes.validate(common), s.network.validate(), s.metering.validate()}
	if err := s.kubernetes.validateJobAPI(s.config.JobAPI); err != nil {
		errs = append(errs, err)
	} else if _, port, _ := net.SplitHostPort(s.config.JobAPI); !isPort(port) {
		errs = append(errs, fmt.Errorf("--job-api %q: port %s: want 0 to 65535", s.config.JobAPI, port))
	}
	return errors.Join(errs...)
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

// outboxLimit bounds the facts on disk; each is at most as large as a request.
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
	if p.Common, err = s.kubernetes.nodeKey(ctx, p, dir); err != nil {
		return err
	}
	b, err := p.Connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	return s.serve(ctx, p, dir, b)
}

// serve does the agent's work in a folder that no other agent uses.
func (s *Service) serve(ctx context.Context, p run.Process, dir string, b *bus.Bus) error {
	t, err := openTables(ctx, b)
	if err != nil {
		return err
	}
	owner, err := s.own(ctx, p, t.nodes)
	if err != nil || ctx.Err() != nil {
		return err
	}
	box, err := outbox.Open(filepath.Join(dir, "outbox"), outboxLimit, p.Log)
	if err != nil {
		return err
	}
	known := attemptindex.New(t.attempts)
	live := func() []train.Attempt { return known.Live(p.Common.NodeID()) }
	reserved := newReservations(p.Common.NodeID(), live, b.Publish, p.Log)
	daemon := mps.Find(s.config.MPSDir)
	placed := newPlacedPods(p.Common.NodeID())
	kubelet, err := s.kubernetes.accounting(daemon, known, placed, p)
	if err != nil {
		return err
	}
	if kubelet.pods != nil {
		kubelet.pods.Look(ctx)
	}
	opened, err := s.open(p, known, kubelet, reserved, daemon)
	if err != nil {
		return err
	}
	defer opened.close()
	open, err := openListeners(ctx, dir, s.config.JobAPI, p.Log)
	if err != nil {
		return err
	}
	defer open.close()
	wanted := newTrialSettings()
	batches := newTunings(wanted, time.Now)
	api := jobapi.New(jobapi.Config{
		Node: p.Common.NodeID(), Bus: b, Reports: t.reports, Attempts: known, Outbox: box, EpochEnded: opened.recorder.Mark,
		UsesMemory: reserved.reported, Tuned: batches.of, BatchesSince: batches.since, Paused: wanted.paused, Log: p.Log, Metrics: p.Metrics,
	})
	limits, err := newPowerLimits(dir, opened.gpus, opened.meter.Devices, live, wanted.watts, p.Log)
	if err != nil {
		return err
	}
	probing, err := s.network.open(ctx, p, b)
	if err != nil {
		return err
	}
	describe := s.describe(p, opened, open, limits, probing, box, kubelet.pods)
	exits := tick.NewSignal()
	work := pool.New().WithContext(ctx).WithCancelOnError()
	synced := tick.NewLatch()
	work.Go(func(ctx context.Context) error {
		return t.attempts.Watch(ctx, seeing(known, p.Common.NodeID(), exits), synced.Open)
	})
	work.Go(func(ctx context.Context) error { return t.tunings.Watch(ctx, batches.onTuning, func() {}) })
	work.Go(func(ctx context.Context) error { return t.settings.Watch(ctx, wanted.onSetting, wanted.synced.Open) })
	work.Go(func(ctx context.Context) error { return t.pods.Watch(ctx, placed.observe, nil) })
	work.Go(func(ctx context.Context) error { return box.Run(ctx, api.DeliverKept) })
	work.Go(api.RunHeartbeats)
	work.Go(api.RunHeld)
	work.Go(func(ctx context.Context) error { return bus.ForgetEnded(ctx, t.reports, t.jobs) })
	// The job API is not announced, and nothing is measured, before the attempts are known.
	work.Go(synced.Then(func(ctx context.Context) error { return announce(ctx, owner, describe, exits, p) }))
	work.Go(synced.Then(func(ctx context.Context) error { return record(ctx, opened.recorder, b) }))
	work.Go(synced.Then(func(ctx context.Context) error { return reserved.run(ctx, opened.meter.Devices) }))
	for _, loop := range s.kubernetes.logLoops(p, known.Newest, api, b, t.jobs) {
		work.Go(synced.Then(loop))
	}
	for _, loop := range slices.Concat(open.loops(api.Handler()), opened.loops, probing.loops(), limits.loops(t.limits, synced), s.superviseMPS(daemon, dir, p)) {
		work.Go(loop)
	}
	return work.Wait()
}

// superviseMPS returns the loop that keeps the daemon running, if the operator asked for it.
func (s *Service) superviseMPS(daemon *mps.Daemon, dir string, p run.Process) []func(context.Context) error {
	if !s.config.MPSDaemon {
		return nil
	}
	return []func(context.Context) error{mps.Supervise(daemon, dir, s.config.MPSLogDir, proc.Root("/proc"), p.Log).Run}
}

// describe returns a function that describes the node. Pods do not see the agent's socket.
func (s *Service) describe(p run.Process, o opened, d listeners, limits *powerLimits, probing *linkProber, box *outbox.Box, pods *deviceplugin.PodResources) func(context.Context, time.Time) train.Node {
	labels := s.kubernetes.labels(p.Log)
	return func(ctx context.Context, now time.Time) train.Node {
		n := o.machine.Node(ctx, p.Common.NodeID(), o.meter.Devices(), now)
		limits.describe(n.Devices)
		n.Labels, n.Machine, n.Version = s.config.Labels, train.NodeID(s.config.Machine), build.This().Version
		n.JobAPI, n.JobAPISocket = d.tcp.Addr().String(), d.socket
		n.Meters, n.MeterTroubles = metersOf(o.meter.Statuses())
		n.Probes, n.ReportsWaiting = probing.addresses(), box.Len()
		if room, err := disk.Of(p.Common.DataDir); err == nil && room.Scarce() {
			n.DiskTrouble = room.String()
		}
		if s.kubernetes.on() {
			n.Backend, n.Machine, n.Name, n.Labels, n.JobAPISocket = train.BackendKubernetes, "", s.kubernetes.Node, labels.Labels(ctx, now), ""
			pods.Mark(n.Devices)
		}
		return n
	}
}

// settle returns the settings with the id of this machine. On Kubernetes the id follows from the node's name, so the
// folder need not store it.
func (s *Service) settle(c run.Common) (run.Common, error) {
	if s.kubernetes.on() {
		c.Node = string(train.KubernetesNodeID(s.kubernetes.Node))
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
	pods     *bus.KV[train.PlacedPod]
}

func openTables(ctx context.Context, b *bus.Bus) (t tables, err error) {
	err = errors.Join(
		bus.Open(ctx, b, contract.Attempts, &t.attempts), bus.Open(ctx, b, contract.Reports, &t.reports),
		bus.Open(ctx, b, contract.Nodes, &t.nodes), bus.Open(ctx, b, contract.Jobs, &t.jobs),
		bus.Open(ctx, b, contract.PowerLimits, &t.limits), bus.Open(ctx, b, contract.Tunings, &t.tunings),
		bus.Open(ctx, b, contract.Settings, &t.settings), bus.Open(ctx, b, contract.PlacedPods, &t.pods),
	)
	if err != nil {
		return t, err
	}
	t.reports, t.nodes = t.reports.Own(), t.nodes.Own()
	return t, nil
}

// opened is what the machine has, ready to be read.
type opened struct {
	machine  *inventory.Inventory
	gpus     gpu.Reader // nil if there are none
	meter    *meter.Meter
	recorder *meter.Recorder
	// loops poll the meters that are reached over the network, and offer the GPUs to a kubelet.
	loops []func(context.Context) error
	close func()
}

// open makes the meter and the inventory of the machine.
func (s *Service) open(p run.Process, known *attemptindex.Index, kubelet accounting, reserved *reservations, daemon *mps.Daemon) (opened, error) {
	const root, cgroups = proc.Root("/proc"), "/sys/fs/cgroup"
	offered := inventory.Config{Kind: s.config.DeviceKind, Slots: s.config.CPUSlots, Proc: root, Cgroups: cgroups, MPS: daemon, AsSubmitters: s.config.AsSubmitters()}
	if kubelet.access != nil {
		offered.Access, offered.Cgroups = kubelet.access, ""
	}
	machine, err := inventory.New(offered)
	if err != nil {
		return opened{}, err
	}
	sources, loops, err := s.metering.sources(p, s.kubernetes.Node)
	if err != nil {
		return opened{}, err
	}
	gpus, closeGPUs := s.openGPUs(p, known)
	listed := gpus
	if kubelet.given != nil {
		listed = kubelet.given(gpus)
	}
	node := p.Common.NodeID()
	m, err := meter.New(meter.Config{
		Proc: root, Cgroups: cgroups, Sources: sources, GPUs: listed, Events: s.metering.events(p), Model: s.metering.model(), Log: p.Log,
		Elsewhere: func() []train.Attempt { return known.Elsewhere(node) },
	})
	if err != nil {
		closeGPUs()
		return opened{}, err
	}
	loops = append(loops, kubelet.loops...)
	if kubelet.offer != nil {
		loops = append(loops, func(ctx context.Context) error { return kubelet.offer(ctx, m.Devices) })
	}
	recorder := meter.NewRecorder(meter.RecorderConfig{
		// The numbers of intervals begin again with every start of the agent.
		Node: node, Boot: machine.BootID() + "-" + strconv.FormatInt(time.Now().UnixNano(), 36), Interval: s.metering.Interval,
		Meter: m, Live: reserved.live, Used: reserved.measured, Log: p.Log, Metrics: p.Metrics,
	})
	return opened{machine, gpus, m, recorder, loops, closeGPUs}, nil
}

// metersOf returns the working meters, and why the others fail.
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

// openGPUs returns a reader of GPUs, nil if there are none, and a function that closes it.
func (s *Service) openGPUs(p run.Process, known *attemptindex.Index) (gpu.Reader, func()) {
	if s.gpus != nil {
		return s.gpus, func() {}
	}
	if s.config.SimGPUs > 0 {
		node := p.Common.NodeID()
		return simgpu.Reader{
			Node: node, Count: s.config.SimGPUs, Model: s.config.SimGPUModel, Memory: unit.Bytes(s.config.SimGPUMemory) * unit.GiB,
			Sick:   filepath.Join(p.Common.DataDir, "nodeagent", "sick-gpus"),
			Limits: filepath.Join(p.Common.DataDir, "nodeagent", "sim-gpu-limits"),
			Draw:   unit.Watts(s.config.SimGPUWatts),
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

// announceInterval is how often the node's entry is refreshed.
const announceInterval = 5 * time.Second

// seeing puts attempts into the index, and sends a signal when one of a node has exited: its end waits for what its
// code has reported.
func seeing(known *attemptindex.Index, node train.NodeID, exits tick.Signal) func(bus.Entry[train.Attempt], bool) {
	return func(e bus.Entry[train.Attempt], deleted bool) {
		known.Put(e, deleted)
		if a := e.Value; !deleted && a.Phase == train.PhaseExited && a.Outcome == train.OutcomeNone && a.IsOn(node) {
			exits.Send()
		}
	}
}

// announce refreshes the node's entry until ctx ends, or the agent of another data folder has taken over.
func announce(ctx context.Context, owner ownership, describe func(context.Context, time.Time) train.Node, exits tick.Signal, p run.Process) error {
	ticker := time.NewTicker(announceInterval)
	defer ticker.Stop()
	started := false
	for {
		switch err := owner.write(ctx, describe(ctx, time.Now().UTC())); {
		case errors.Is(err, run.ErrTaken):
			return err
		case err != nil && ctx.Err() == nil:
			p.Log.Warn("node not announced", "error", err)
		case err == nil && !started:
			started = true
			p.Started()
		}
		// Until the first success it retries more often.
		var soon <-chan time.Time
		if !started {
			soon = time.After(200 * time.Millisecond)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-soon:
		case <-exits:
		case <-ticker.C:
		}
	}
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
