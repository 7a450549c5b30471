package kube

import (
	"errors"
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// ownSnapshots is a second path at which a container sees its job's own folder of snapshots, /snapshots/JOB_UUID. It
// is mounted for its side effect: the kubelet creates the folder, below which scripts save without creating it.
const ownSnapshots = "/switchyard/snapshots"

// volumes are the folders of a job as a pod sees them.
type volumes struct {
	sources []corev1.Volume
	mounts  []corev1.VolumeMount
}

var errOutside = errors.New("is not below a folder that jobs may use on Kubernetes (executor.pod_volume_roots)")

// composeVolumes gives a pod its folders. Paths below a root that is a claim are folders of that claim.
func composeVolumes(s launch.Setting, o Options) (volumes, error) {
	snapshots, err := parseRoot(o.SnapshotsRoot)
	if err != nil {
		return volumes{}, err
	}
	var roots []root
	for _, text := range o.VolumeRoots {
		r, err := parseRoot(text)
		if err != nil {
			return volumes{}, err
		}
		roots = append(roots, r)
	}
	var v volumes
	for _, f := range []struct{ field, folder, target string }{
		{"custom_dir", s.Spec.CustomDir, launch.CustomTarget},
		{"datasets_dir", s.Spec.DatasetsDir, launch.DataTarget},
		{"snapshots_dir", s.Spec.SnapshotsDir, launch.SnapshotsTarget},
	} {
		if f.folder == "" {
			continue
		}
		if err := v.addGiven(f.field, f.folder, f.target, roots); err != nil {
			return v, err
		}
	}
	if folder := datasetsOf(s.Spec, o); folder != "" {
		r, below, found := within(roots, folder)
		if !found {
			return v, fmt.Errorf("executor.pod_datasets_dir %s %w", folder, errOutside)
		}
		v.addOwn("datasets", r, below, launch.DataTarget)
	}
	if s.Spec.DataURL != "" {
		if err := v.addData(s, o); err != nil {
			return v, err
		}
	}
	if s.Spec.SnapshotsDir == "" {
		v.addOwn("snapshots", snapshots, string(s.Job), launch.SnapshotsTarget)
	}
	for _, m := range v.mounts {
		if m.MountPath == launch.SnapshotsTarget {
			m.MountPath, m.SubPathExpr, m.SubPath = ownSnapshots, path.Join(m.SubPath, "$(JOB_UUID)"), ""
			v.mounts = append(v.mounts, m)
			break
		}
	}
	// Data loaders pass batches between processes through shared memory; a container's 64 MiB are too few.
	v.sources = append(v.sources, corev1.Volume{
		Name: "shm", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}},
	})
	v.mounts = append(v.mounts, corev1.VolumeMount{Name: "shm", MountPath: "/dev/shm"})
	return v, nil
}

// addGiven adds a folder that the user named. The folder must exist: creating it for a misspelt name would only hide
// the mistake.
func (v *volumes) addGiven(field, folder, target string, roots []root) error {
	r, below, found := within(roots, folder)
	if !found {
		return fmt.Errorf("%s %s %w", field, folder, errOutside)
	}
	v.add(strings.TrimSuffix(field, "_dir"), r, below, target)
	return nil
}

// within returns the root that holds a folder, and where the folder is below it.
func within(roots []root, folder string) (r root, below string, found bool) {
	clean := path.Clean(folder)
	for _, r := range roots {
		if path.IsAbs(folder) && r.holds(clean) {
			return r, strings.TrimPrefix(strings.TrimPrefix(clean, r.path), "/"), true
		}
	}
	return root{}, "", false
}

// datasetsOf is the operator's folder of datasets for a job that names none; empty for none. A job without a user has
// no folder of its user's.
func datasetsOf(s train.Spec, o Options) string {
	const user = "{user}"
	strange := s.User == "" || s.User == ".." || strings.Contains(s.User, "/")
	if s.DatasetsDir != "" || s.DataURL != "" || strange && strings.Contains(o.DatasetsDir, user) {
		return ""
	}
	return strings.ReplaceAll(o.DatasetsDir, user, s.User)
}

// add mounts what is below a root. Only a claim is mounted as a whole.
func (v *volumes) add(name string, r root, below, target string) {
	mount, kind := corev1.VolumeMount{Name: name, MountPath: target}, corev1.HostPathDirectory
	source := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path.Join(r.path, below), Type: &kind}}
	switch {
	case r.claim != "":
		source = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: r.claim}}
		mount.SubPath = below
	case r.server != "":
		source = corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: r.server, Path: path.Join(r.export, below)}}
	}
	v.sources = append(v.sources, corev1.Volume{Name: name, VolumeSource: source})
	v.mounts = append(v.mounts, mount)
}

// addOwn mounts a folder that the kubelet creates with the mode of the root. So the root decides whether jobs that
// are not root may write.
func (v *volumes) addOwn(name string, r root, folder, target string) {
	v.add(name, r, "", target)
	if made := v.sources[len(v.sources)-1].HostPath; made != nil {
		kind := corev1.HostPathDirectoryOrCreate
		made.Type = &kind
	}
	v.mounts[len(v.mounts)-1].SubPath = folder
}
