package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/nodeagent/attemptindex"
	"github.com/switchyard-dl/switchyard/services/nodeagent/deviceplugin"
	"github.com/switchyard-dl/switchyard/services/nodeagent/dra"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
	"github.com/switchyard-dl/switchyard/services/nodeagent/inventory"
	"github.com/switchyard-dl/switchyard/services/nodeagent/mps"
	"github.com/switchyard-dl/switchyard/services/nodeagent/nodekey"
	"github.com/switchyard-dl/switchyard/services/nodeagent/nodelabels"
	"github.com/switchyard-dl/switchyard/services/nodeagent/podlog"
)

// kubernetes are the settings of an agent whose node belongs to a cluster. There the kubelet starts pods, accounts
// for GPUs, and writes logs that the agent copies.
type kubernetes struct{ settings.Kubelet }

func (k *kubernetes) on() bool { return k.Node != "" }

// validate checks the name of the node.
func (k *kubernetes) validate(common run.Common) error {
	if !k.on() {
		return nil
	}
	if id := train.KubernetesNodeID(k.Node); common.Node != "" && common.NodeID() != id {
		return fmt.Errorf("data.node %q: node %q of Kubernetes has the id %q; leave data.node (--node) out", common.Node, k.Node, id)
	} else if _, err := train.ParseJobID(string(id)); err != nil {
		return fmt.Errorf("nodeagent.kubernetes_node %q: want the name of a node", k.Node)
	}
	return nil
}

// validateJobAPI checks the address of the job API. Pods cannot reach a loopback address; without Kubernetes, no
// other machine should reach it.
func (k *kubernetes) validateJobAPI(address string) error {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	known := err == nil && ip != nil
	switch {
	case k.on() && (!known || ip.IsUnspecified()):
		return fmt.Errorf("--job-api %q: want the address of this node (the field status.hostIP of the agent's pod) and a port: jobs get this address", address)
	case !k.on() && (!known || !ip.IsLoopback()):
		return fmt.Errorf("--job-api %q: want a loopback address such as %s: a client that reaches it needs only a job's secret", address, settings.AnyLocalPort)
	}
	return nil
}

// nodeKey returns the settings with a folder that has the key of this node, from a server of the bus. Without the
// address of one, they stay as they are.
func (k *kubernetes) nodeKey(ctx context.Context, p run.Process, dir string) (run.Common, error) {
	c := p.Common
	if !k.on() || k.KeyURL == "" {
		return c, nil
	}
	door := nodekey.Door{URL: k.KeyURL, Token: k.KeyToken, Certified: identity.Keys(c.KeysDir())}
	c.Keys = filepath.Join(dir, identity.FolderName)
	return c, door.Keep(ctx, c.NodeID(), identity.Keys(c.Keys), p.Log)
}

// accounting is how the kubelet accounts for the node's GPUs; empty without a kubelet.
type accounting struct {
	// pods has the devices of pods.
	pods *deviceplugin.PodResources
	// access says how pods get a GPU.
	access func(gpu.Device) inventory.Access
	// given returns a reader of the GPUs as others give them out, offer offers them to the kubelet: one of the two is
	// nil.
	given func(gpu.Reader) gpu.Reader
	offer func(ctx context.Context, gpus func() []gpu.Device) error
	// loops keep up what the others need.
	loops []func(context.Context) error
}

// accounting has this agent offer the GPUs, or follows the device plugin or the driver that does.
func (k *kubernetes) accounting(daemon *mps.Daemon, known *attemptindex.Index, placed *placedPods, p run.Process) (accounting, error) {
	if !k.on() {
		return accounting{}, nil
	}
	pods := k.podResources(known, p.Log)
	a := accounting{pods: pods, loops: []func(context.Context) error{pods.Run}}
	switch {
	case k.GPUClass != "":
		return k.claims(a, daemon, p.Log)
	case k.GPUResource != "":
		a.access = func(gpu.Device) inventory.Access {
			return inventory.Access{Resource: k.GPUResource, Units: 1, Whole: true}
		}
		a.given = func(r gpu.Reader) gpu.Reader {
			if r == nil {
				r = pods
			}
			return pods.GivenOut(r, func() []train.Attempt { return known.Live(p.Common.NodeID()) })
		}
		return a, nil
	}
	dir, classic := filepath.Join(k.Root, "plugins_registry"), false
	if k.DevicePluginDir != "" {
		dir, classic = k.DevicePluginDir, true
	}
	config := deviceplugin.Config{Dir: dir, Classic: classic, Dev: "/dev", MPSDir: daemon.Dir, Every: time.Second, Log: p.Log, Metrics: p.Metrics}
	if k.PlainPods {
		config.Booked = func(ctx context.Context, gib int) (train.DeviceID, bool) {
			return placed.next(ctx, gib, pods.HasMemory)
		}
	}
	plugins := deviceplugin.New(config)
	a.access = func(g gpu.Device) inventory.Access {
		return inventory.Access{Resource: deviceplugin.Resource(g.UUID), Units: deviceplugin.Units(g.Memory)}
	}
	a.offer = plugins.Run
	return a, nil
}

// claims has pods claim GPUs, of this agent's driver or of the one behind another class.
func (k *kubernetes) claims(a accounting, daemon *mps.Daemon, log *slog.Logger) (accounting, error) {
	client, err := dra.Connect()
	if err != nil {
		return a, err
	}
	offers := dra.Follow(client, k.Node, k.GPUClass)
	a.pods.UUID, a.access = offers.UUID, offers.Access
	a.loops = append(a.loops, offers.Run)
	if k.GPUClass != dra.Class {
		a.given = offers.Given
		return a, nil
	}
	a.offer = dra.New(dra.Config{Client: client, Node: k.Node, Root: k.Root, CDI: "/var/run/cdi", Dev: "/dev", MPSDir: daemon.Dir, Every: time.Second, Log: log}).Run
	return a, nil
}

// labels are the labels of the node in Kubernetes, as last read.
func (k *kubernetes) labels(log *slog.Logger) *nodelabels.Cache {
	source := nodelabels.Cluster(k.Node)
	if k.NodeLabels != "" {
		source = nodelabels.File(k.NodeLabels)
	}
	return &nodelabels.Cache{Source: source, OnChange: func(err error) {
		if err != nil {
			log.Warn("labels of the node not read", "error", err)
		}
	}}
}

// podResources finds out which devices pods have.
func (k *kubernetes) podResources(known *attemptindex.Index, log *slog.Logger) *deviceplugin.PodResources {
	socket := filepath.Join(k.Root, "pod-resources", "kubelet.sock")
	return &deviceplugin.PodResources{Socket: socket, Namespaces: k.Namespaces, Attempts: known.Newest, Resource: k.GPUResource, OnChange: func(err error) {
		if err != nil {
			log.Warn("devices of pods are not known", "socket", socket, "error", err)
		}
	}}
}

// logLoops copy the logs of jobs' pods into the data folder, report the epochs in them, and answer log requests.
func (k *kubernetes) logLoops(p run.Process, attempts func() []train.Attempt, epochs podlog.Receiver, b *bus.Bus, jobs *bus.KV[train.Job]) []func(context.Context) error {
	if !k.on() {
		return nil
	}
	logs := podlog.New(podlog.Config{
		Root: k.PodLogs, Layout: installation.Layout{DataDir: p.Common.DataDir}, LimitBytes: int64(k.PodLogLimit) << 20,
		Attempts: attempts, Node: p.Common.NodeID(), Receiver: epochs, Log: p.Log,
	})
	return []func(context.Context) error{logs.Run, func(ctx context.Context) error {
		return answerLogs(ctx, b, p.Common.NodeID(), ended(b, jobs, attempts), logs)
	}}
}

// makeSnapshots makes the folder of the node in which jobs save, for jobs of any user. The kubelet makes the folder
// of each job in it, with its mode; if the kubelet made this one too, only root could write. The mode of an existing
// folder is left to its owner.
func (k *kubernetes) makeSnapshots(dataDir string) error {
	if !k.on() {
		return nil
	}
	const everybody = fs.ModePerm | fs.ModeSticky
	dir := filepath.Join(dataDir, "snapshots")
	err := os.Mkdir(dir, fs.ModePerm)
	if err == nil {
		err = os.Chmod(dir, everybody) // restores what the umask has removed
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the folder of snapshots %s: %w", dir, err)
	}
	return nil
}

// answerLogs serves pieces of jobs' logs.
func answerLogs(ctx context.Context, b *bus.Bus, node train.NodeID, ended func(context.Context, train.JobID) (bool, error), logs *podlog.Tailer) error {
	return bus.Answer(ctx, b, rpc.LogSubject(node), func(ctx context.Context, r rpc.LogRequest) (rpc.LogChunk, error) {
		over, err := ended(ctx, r.Job)
		if err != nil {
			return rpc.LogChunk{}, fmt.Errorf("look whether %s has ended: %w", r.Job, err)
		}
		if over {
			logs.Poll(ctx) // what the job wrote until it ended is there by now
		}
		return logs.Answer(r, over)
	})
}

// ended returns a function that finds out whether a job has ended. An agent that may not read jobs goes by the newest
// attempt.
func ended(b *bus.Bus, jobs *bus.KV[train.Job], attempts func() []train.Attempt) func(context.Context, train.JobID) (bool, error) {
	return func(ctx context.Context, id train.JobID) (bool, error) {
		if b.OfNode() {
			runs := func(a train.Attempt) bool { return a.Job == id && a.Phase != train.PhaseExited }
			return !slices.ContainsFunc(attempts(), runs), nil
		}
		job, err := jobs.Get(ctx, string(id))
		if errors.Is(err, bus.ErrNotFound) {
			return true, nil
		}
		return job.Value.State.Terminal(), err
	}
}
