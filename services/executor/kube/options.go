// Package kube runs attempts as pods. It decides nothing about which attempt runs or what an exit means; it keeps the promise that each rank of an attempt
// runs at most once, whoever is killed at whatever moment.
//
// What is made for attempt n of a job, all of it named after the two:
//
//   - a Secret with the attempt's token, made before the attempt is claimed and never again. It owns everything else, so that deleting it removes all, and no
//     container starts without it: an executor that was asleep and wakes after its successor has ended the attempt can create pods, and they never run.
//   - for a gang a headless Service, under whose name the ranks find each other, and for a job with ports a NodePort Service, both by server-side apply.
//   - a pod for each rank, created and never applied: a name that is taken is read and compared. A finalizer holds it until its end was recorded, so that a pod
//     that is evicted or deleted by hand still tells how it ended, and none is missing that ever ran.
//
// The capability of a job is derived from one key in a Secret of the namespace.
package kube

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Options are the operator's settings.
type Options struct {
	Kubeconfig     string
	Namespace      string
	Image          string
	PullPolicy     string
	Roots          []string
	SnapshotsRoot  string
	Tolerate       []string
	MemoryLimit    string
	RunAsUser      int64
	StartLimit     time.Duration
	ScheduleLimit  time.Duration
	NodeLostAfter  time.Duration
	QueriesPerSec  float32
	CallsInOneTime int
}

// Flags declares the settings.
func (o *Options) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "file that says how to reach Kubernetes (default: the service account of the executor's own pod)")
	fs.StringVar(&o.Namespace, "jobs-namespace", "switchyard-jobs", "namespace of jobs' pods")
	fs.StringVar(&o.Image, "pod-image", "", "image of jobs that name none; without it they are refused on Kubernetes")
	fs.StringVar(&o.PullPolicy, "pod-image-pull-policy", "IfNotPresent", "when nodes pull images: Always, IfNotPresent or Never")
	fs.StringArrayVar(&o.Roots, "pod-volume-root", []string{"/data", "/home", "/mnt", "/srv"},
		"folder of the nodes below which jobs' folders may be; with =pvc:NAME it is a claim instead, with =nfs:SERVER:/EXPORT what a server exports (repeatable)")
	fs.StringVar(&o.SnapshotsRoot, "pod-snapshots-root", "/var/lib/switchyard/snapshots", "folder of the snapshots of jobs that name none: of the nodes, or PATH=pvc:NAME or PATH=nfs:SERVER:/EXPORT")
	fs.StringArrayVar(&o.Tolerate, "pod-tolerate", []string{"nvidia.com/gpu"}, "key of a taint that keeps other pods off the nodes, and jobs' not (repeatable)")
	fs.StringVar(&o.MemoryLimit, "pod-memory-limit", "", "main memory that a pod may use, e.g. 64Gi (default: no limit)")
	fs.Int64Var(&o.RunAsUser, "pod-run-as-user", -1, "user id of jobs' processes; -1 leaves it to the image")
	fs.DurationVar(&o.StartLimit, "pod-start-limit", 5*time.Minute, "how long it may take until all pods of a job run; then all of them are removed and tried again")
	fs.DurationVar(&o.ScheduleLimit, "pod-schedule-limit", 30*time.Second, "how long a pod may wait for its node to have room")
	fs.DurationVar(&o.NodeLostAfter, "node-lost-after", 2*time.Minute, "how long a node may be silent before its pods are given up")
	fs.Float32Var(&o.QueriesPerSec, "kube-qps", 1000, "requests a second to Kubernetes' API server")
	fs.IntVar(&o.CallsInOneTime, "kube-concurrency", 16, "attempts whose pods are created or removed at the same time")
}

// Validate names every wrong setting.
func (o *Options) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) } //nolint:err113 // the words are for the operator
	if len(validation.IsDNS1123Label(o.Namespace)) > 0 {
		wrong("--jobs-namespace %q: want the name of a namespace", o.Namespace)
	}
	if !slices.Contains([]string{"Always", "IfNotPresent", "Never"}, o.PullPolicy) {
		wrong("--pod-image-pull-policy %q: want Always, IfNotPresent or Never", o.PullPolicy)
	}
	for _, text := range append(slices.Clone(o.Roots), o.SnapshotsRoot) {
		if _, err := parseRoot(text); err != nil {
			errs = append(errs, err)
		}
	}
	for _, taint := range o.Tolerate {
		if len(validation.IsQualifiedName(taint)) > 0 {
			wrong("--pod-tolerate %q: want the key of a taint, e.g. nvidia.com/gpu", taint)
		}
	}
	if o.MemoryLimit != "" {
		if q, err := resource.ParseQuantity(o.MemoryLimit); err != nil || q.Sign() <= 0 {
			wrong("--pod-memory-limit %q: want an amount such as 64Gi", o.MemoryLimit)
		}
	}
	if o.StartLimit <= 0 || o.ScheduleLimit <= 0 || o.NodeLostAfter <= 0 {
		wrong("--pod-start-limit %s, --pod-schedule-limit %s, --node-lost-after %s: want more than 0s", o.StartLimit, o.ScheduleLimit, o.NodeLostAfter)
	}
	if o.QueriesPerSec <= 0 || o.CallsInOneTime < 1 {
		wrong("--kube-qps %g, --kube-concurrency %d: want more than 0", o.QueriesPerSec, o.CallsInOneTime)
	}
	return errors.Join(errs...)
}

// root is a folder below which jobs' folders may be: of the nodes, of a claim, or of what a server exports by NFS.
type root struct{ path, claim, server, export string }

var errRoot = errors.New("want an absolute path other than /, PATH=pvc:NAME or PATH=nfs:SERVER:/EXPORT")

func parseRoot(text string) (root, error) {
	folder, source, given := strings.Cut(text, "=")
	r := root{path: folder}
	good := isFolder(folder) && folder != "/"
	if given {
		kind, place, _ := strings.Cut(source, ":")
		switch kind {
		case "pvc":
			r.claim = place
			good = good && len(validation.IsDNS1123Subdomain(place)) == 0
		case "nfs":
			server, export, found := strings.Cut(place, ":/")
			r.server, r.export = server, "/"+export
			good = good && found && server != "" && !strings.ContainsAny(server, "/ ") && isFolder(r.export)
		default:
			good = false
		}
	}
	if !good {
		return root{}, fmt.Errorf("folder of jobs %q: %w", text, errRoot)
	}
	return r, nil
}

func isFolder(text string) bool { return path.IsAbs(text) && path.Clean(text) == text }

// holds says whether a folder is the root or below it.
func (r root) holds(folder string) bool {
	return folder == r.path || strings.HasPrefix(folder, r.path+"/")
}
