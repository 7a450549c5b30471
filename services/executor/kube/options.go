// Package kube runs attempts as pods. It does not decide which attempt runs or what an exit means. It guarantees that
// each rank of an attempt runs at most once, whichever process is killed at whatever moment.
//
// The following objects are made for attempt n of a job; all of them are named after the two:
//
//   - a Secret with the attempt's token, made before the attempt is claimed and never again. It owns everything else,
//     so deleting it removes all, and no container starts without it: an executor that was asleep and wakes after its
//     successor has ended the attempt can create pods, but they never run.
//   - for a gang a headless Service, under whose name the ranks find each other, and for a job with ports a NodePort
//     Service.
//   - for a rank whose devices are claimed (resource.k8s.io) a ResourceClaim that names them.
//   - a pod for each rank. A finalizer holds the pod until its end is recorded, so that a pod that is evicted or
//     deleted by hand still shows its end, and no pod that ever ran is missing.
//
// They are created and never applied: if a name is taken, the object is read, and left alone if it has another owner.
//
// The capability of a job is derived from one key in a Secret of the namespace.
package kube

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/switchyard-dl/switchyard/libs/settings"
)

// Options are the operator's settings.
type Options = settings.Kubernetes

// Bounds of requests to Kubernetes.
const (
	// queriesPerSecond is the most requests to the API server.
	queriesPerSecond = 1000
	// attemptsAtOnce is the number of attempts whose pods are created or removed at the same time.
	attemptsAtOnce = 16
)

// Check reads the folders of jobs.
func Check(o Options) error {
	var errs []error
	var roots []root
	for _, text := range slices.DeleteFunc(append(slices.Clone(o.VolumeRoots), o.SnapshotsRoot, o.DataRoot), func(text string) bool { return text == "" }) {
		r, err := parseRoot(text)
		errs, roots = append(errs, err), append(roots, r)
	}
	if _, _, found := within(roots[:len(o.VolumeRoots)], o.DatasetsDir); o.DatasetsDir != "" && !found {
		errs = append(errs, fmt.Errorf("executor.pod_datasets_dir %s %w", o.DatasetsDir, errOutside))
	}
	return errors.Join(errs...)
}

// root is a folder below which jobs' folders may be: on the nodes, in a claim, or in what a server exports by NFS.
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

// holds reports whether a folder is the root or below it.
func (r root) holds(folder string) bool {
	return folder == r.path || strings.HasPrefix(folder, r.path+"/")
}
