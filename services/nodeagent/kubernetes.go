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
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/nodeagent/deviceplugin"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
	"github.com/switchyard-dl/switchyard/services/nodeagent/mps"
	"github.com/switchyard-dl/switchyard/services/nodeagent/nodelabels"
	"github.com/switchyard-dl/switchyard/services/nodeagent/podlog"
)

// kubernetes are the settings of an agent whose node belongs to a cluster. There, pods are started by the kubelet, which accounts for GPUs, and write logs
// that the agent copies.
type kubernetes struct {
	node       string
	labels     string
	namespace  string
	podLogs    string
	logMiB     int
	kubelet    string
	classicDir string
}

func (k *kubernetes) flags(fs *pflag.FlagSet) {
	fs.StringVar(&k.node, "kubernetes-node", "", "name of this node in Kubernetes (the field spec.nodeName of the agent's pod): its jobs are pods")
	fs.StringVar(&k.labels, "node-labels", "", `file with the labels of this Kubernetes node, as lines key="value" (default: asked of the API server with the pod's service account)`)
	fs.StringVar(&k.namespace, "pod-namespace", "switchyard-jobs", "namespace of jobs' pods, of which logs are kept")
	fs.StringVar(&k.podLogs, "pod-logs", "/var/log/pods", "folder into which the kubelet has the logs of pods written")
	fs.IntVar(&k.logMiB, "pod-log-limit", 16, "size to which the log of a job of pods is kept, in MiB: its beginning and its end")
	fs.StringVar(&k.kubelet, "kubelet-root", "/var/lib/kubelet", "root folder of the kubelet; the sockets of GPUs go into its plugins_registry")
	fs.StringVar(&k.classicDir, "device-plugin-dir", "", "put the sockets of GPUs into this folder and register them there (for kubelets that do not watch plugins_registry: /var/lib/kubelet/device-plugins)")
}

func (k *kubernetes) on() bool { return k.node != "" }

// validate names every wrong setting at once.
func (k *kubernetes) validate(common run.Common) error {
	if !k.on() {
		return nil
	}
	var errs []error
	if id := train.KubernetesNodeID(k.node); common.Node != "" && common.NodeID() != id {
		errs = append(errs, fmt.Errorf("--node %q: node %q of Kubernetes has the id %q; leave --node out", common.Node, k.node, id))
	} else if _, err := train.ParseJobID(string(id)); err != nil {
		errs = append(errs, fmt.Errorf("--kubernetes-node %q: want the name of a node", k.node))
	}
	for flag, path := range map[string]string{"pod-logs": k.podLogs, "kubelet-root": k.kubelet, "device-plugin-dir": k.classicDir, "node-labels": k.labels} {
		optional := flag == "device-plugin-dir" || flag == "node-labels"
		if !filepath.IsAbs(path) && (path != "" || !optional) {
			errs = append(errs, fmt.Errorf("--%s %q: want an absolute path", flag, path))
		}
	}
	const mostMiB = 1 << 20
	if k.logMiB < 1 || k.logMiB > mostMiB {
		errs = append(errs, fmt.Errorf("--pod-log-limit %d: want 1 to %d MiB", k.logMiB, mostMiB))
	}
	if k.namespace == "" {
		errs = append(errs, errors.New("--pod-namespace: want the namespace of jobs' pods"))
	}
	return errors.Join(errs...)
}

// validateJobAPI checks the address of the job API. Pods cannot reach a loopback address; elsewhere nobody else shall reach it.
func (k *kubernetes) validateJobAPI(address string) error {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	known := err == nil && ip != nil
	switch {
	case k.on() && (!known || ip.IsUnspecified()):
		return fmt.Errorf("--job-api %q: want the address of this node (the field status.hostIP of the agent's pod) and a port: jobs are told of it", address)
	case !k.on() && (!known || !ip.IsLoopback()):
		return fmt.Errorf("--job-api %q: want a loopback address such as %s: whoever reaches it needs only a job's secret", address, anyPort)
	}
	return nil
}

// accountant has a node's GPUs accounted for by what hands them to containers: a kubelet, by device plugins. Dynamic resource allocation would be another one.
type accountant interface {
	// Account says under which resource a GPU is accounted for, and how many units of it are the whole GPU.
	Account(g gpu.Device) (resource string, units int)
	// Run offers the GPUs that are listed until ctx ends.
	Run(ctx context.Context, gpus func() []gpu.Device) error
}

// accountant is nil where there is no kubelet.
func (k *kubernetes) accountant(daemon *mps.Daemon, log *slog.Logger, metrics prometheus.Registerer) accountant {
	if !k.on() {
		return nil
	}
	dir, classic := filepath.Join(k.kubelet, "plugins_registry"), false
	if k.classicDir != "" {
		dir, classic = k.classicDir, true
	}
	return deviceplugin.New(deviceplugin.Config{Dir: dir, Classic: classic, Dev: "/dev", MPSDir: daemon.Dir, Every: time.Second, Log: log, Metrics: metrics})
}

// describe adds to the description of a machine what it is in Kubernetes. Pods do not see the agent's socket.
func (k *kubernetes) describe(machine func(context.Context, time.Time) train.Node, log *slog.Logger) func(context.Context, time.Time) train.Node {
	if !k.on() {
		return machine
	}
	labels := nodelabels.Cache{Source: k.labelSource(), Say: func(err error) {
		if err != nil {
			log.Warn("labels of the node not read", "error", err)
		}
	}}
	return func(ctx context.Context, now time.Time) train.Node {
		n := machine(ctx, now)
		n.Backend, n.Name, n.Labels, n.JobAPISocket = train.BackendKubernetes, k.node, labels.Labels(ctx, now), ""
		return n
	}
}

// labelSource is where the node's labels are read.
func (k *kubernetes) labelSource() nodelabels.Source {
	if k.labels != "" {
		return nodelabels.File(k.labels)
	}
	return nodelabels.Cluster(k.node)
}

// logLoops copy the logs of jobs' pods into the data folder, tell of the epochs in them, and answer who asks for them.
func (k *kubernetes) logLoops(p run.Process, attempts func() []train.Attempt, epochs podlog.Listener, b *bus.Bus, jobs *bus.KV[train.Job]) []func(context.Context) error {
	if !k.on() {
		return nil
	}
	logs := podlog.New(podlog.Config{
		Root: k.podLogs, Namespace: k.namespace, Jobs: filepath.Join(p.Common.DataDir, "jobs"), LimitBytes: int64(k.logMiB) << 20,
		Attempts: attempts, Node: p.Common.NodeID(), Listener: epochs, Log: p.Log,
	})
	return []func(context.Context) error{logs.Run, func(ctx context.Context) error { return answerLogs(ctx, b, p.Common.NodeID(), jobs, logs) }}
}

// makeSnapshots makes the folder of the node in which jobs save, for jobs of any user. The kubelet makes the folder of each job in it, with its mode; were it
// to make this one too, only root could write. A folder that is there is left as its owner has it.
func (k *kubernetes) makeSnapshots(dataDir string) error {
	if !k.on() {
		return nil
	}
	const everybody = fs.ModePerm | fs.ModeSticky
	dir := filepath.Join(dataDir, "snapshots")
	err := os.Mkdir(dir, fs.ModePerm)
	if err == nil {
		err = os.Chmod(dir, everybody) // what the umask has taken
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the folder of snapshots %s: %w", dir, err)
	}
	return nil
}

var errNoOutput = errors.New("no output here: the job has not started on this node")

// answerLogs serves pieces of jobs' logs.
func answerLogs(ctx context.Context, b *bus.Bus, node train.NodeID, jobs *bus.KV[train.Job], logs *podlog.Tailer) error {
	return bus.Answer(ctx, b, train.LogSubject(node), func(ctx context.Context, r train.LogRequest) (train.LogChunk, error) {
		if _, err := train.ParseJobID(string(r.Job)); err != nil {
			return train.LogChunk{}, err
		}
		job, err := jobs.Get(ctx, string(r.Job))
		if err != nil && !errors.Is(err, bus.ErrNotFound) {
			return train.LogChunk{}, fmt.Errorf("look whether %s has ended: %w", r.Job, err)
		}
		over := err != nil || job.Value.State.Terminal()
		if over {
			logs.Poll(ctx) // what the job has written until it ended is there by now
		}
		chunk, err := logs.Read(r)
		if err != nil {
			return chunk, err
		}
		if over && chunk.Size == 0 {
			return chunk, fmt.Errorf("job %s: %w", r.Job, errNoOutput)
		}
		chunk.Ended = over && chunk.Next >= chunk.Size
		return chunk, nil
	})
}
