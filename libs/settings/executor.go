package settings

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/config"
)

// The values of Executor.Backend.
const (
	BackendLocal      = "local"
	BackendKubernetes = "kubernetes"
)

// Executor configures how jobs run.
type Executor struct {
	Backend      string
	StopGrace    time.Duration
	StopGraceMax time.Duration
	KillAfter    time.Duration
	PythonPath   string
	// JobEnvironment names variables of the executor's environment that jobs get too: NAME, or PREFIX*.
	JobEnvironment []string
	AllowRootJobs  bool
	JobLogLimit    int
	JobMounts      string
	// DataLimit is the size of the node's cache of data, in GiB. DataAllow are networks that addresses of data may lead to
	// although they are the machine itself or link-local.
	DataLimit   int
	DataAllow   []string
	WebHDFSPort int
	S3          string
	// RunAs says as whom jobs run. Launcher and JobsDir are the socket and the folder of the launcher.
	RunAs, Launcher, JobsDir string
	Kubernetes               Kubernetes
}

// Kubernetes configures jobs that are pods.
type Kubernetes struct {
	Kubeconfig string
	Namespace  string
	// TenantNamespaces are the namespaces of tenants that have one of their own.
	TenantNamespaces map[string]string
	Image            string
	PullPolicy       string
	VolumeRoots      []string
	DatasetsDir      string
	SnapshotsRoot    string
	DataImage        string
	DataRoot         string
	Tolerate         []string
	MemoryLimit      string
	RunAsUser        int
	StartLimit       time.Duration
	ScheduleLimit    time.Duration
	NodeLostAfter    time.Duration
}

// The values of Executor.RunAs.
const (
	RunAsService   = "service"
	RunAsSubmitter = "submitter"
)

// The values of Executor.JobMounts.
const (
	MountsAuto  = "auto"
	MountsNever = "never"
)

// Declare declares the section executor.
func (c *Executor) Declare(set *config.Set) {
	s := set.Section(ExecutorSection, "The executor starts and stops jobs: as processes of this machine, or as pods.")
	s.String(&c.Backend, "backend", BackendLocal, "what runs jobs: local (processes of this machine) or kubernetes (pods)").Flag().
		OneOf(BackendLocal, BackendKubernetes)
	s.Duration(&c.StopGrace, "stop-grace", 10*time.Minute, "how long a job may take to leave once it can save its state, before it is killed").AtLeast(0)
	s.Duration(&c.StopGraceMax, "stop-grace-max", 2*time.Hour, "the longest that a job is given to leave, if the end of its epoch is far").AtLeast(0)
	s.Duration(&c.KillAfter, "kill-after", 5*time.Second, "time between SIGTERM and SIGKILL of a job's processes").Above(0)
	s.String(&c.PythonPath, "python-path", "", "folder that is added to the PYTHONPATH of jobs").Shown("the switchyard package in the data folder, with `switchyard up`").
		Check(func() error { return absoluteOrNone(c.PythonPath) })
	name := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*\*?$`)
	s.Words(&c.JobEnvironment, "job-environment", nil,
		"variables of the executor's own environment that jobs get, as NAME or PREFIX*; they always get HOME, USER, LOGNAME, SHELL, TZ, TMPDIR and, unless the submission has others, PATH, LANG and LC_*").
		Check(func() error {
			for _, pattern := range c.JobEnvironment {
				if !name.MatchString(pattern) || strings.HasPrefix(pattern, config.EnvPrefix) {
					return fmt.Errorf("%q: want the name of a variable, e.g. LD_LIBRARY_PATH or NCCL_*, that does not begin with %s", pattern, config.EnvPrefix)
				}
			}
			return nil
		})
	s.Bool(&c.AllowRootJobs, "allow-root-jobs", false, "let jobs run as root, if the executor does, on a machine where other people can log in: each of them can then be root").Flag()
	s.Int(&c.JobLogLimit, "job-log-limit", 16, "largest size of a job's log in MiB: its beginning and its end are kept").Between(1, mostMiB)
	s.String(&c.JobMounts, "job-mounts", MountsAuto, "give jobs /custom, /snapshots and /data as mounts: auto (where the machine allows it) or never").OneOf(MountsAuto, MountsNever)
	const mostGiB, mostPort = 1 << 20, 65535
	s.Int(&c.DataLimit, "data-limit", 100, "size of the node's cache of the data that jobs name by data_url, in GiB").Between(1, mostGiB)
	s.Strings(&c.DataAllow, "data-allow", nil, "networks that data_url may reach although they are loopback, link-local or metadata addresses, as 127.0.0.1/32").Check(func() error {
		_, err := prefixes(c.DataAllow)
		return err
	})
	s.Int(&c.WebHDFSPort, "webhdfs-port", 9870, "port on which the namenode of an hdfs data_url answers WebHDFS (50070 before Hadoop 3)").Between(1, mostPort)
	s.String(&c.S3, "s3", "https://s3.amazonaws.com", "server of an s3 data_url: s3://BUCKET/KEY is BUCKET/KEY below it")
	s.String(&c.RunAs, "run-as", RunAsService, "as whom jobs run: service (the user of the executor) or submitter (the user of the machine who submitted the job, which takes the launcher)").
		OneOf(RunAsService, RunAsSubmitter)
	s.String(&c.Launcher, "launcher", "/run/switchyard-launcher/launcher.sock", "socket of the launcher, which starts jobs as other users").Check(func() error { return absolute(c.Launcher) })
	s.String(&c.JobsDir, "launcher-jobs", "/var/lib/switchyard-jobs", "folder in which the launcher keeps the files of jobs").Check(func() error { return absolute(c.JobsDir) })
	c.Kubernetes.declare(s)
}

const mostMiB = 1 << 20

func (c *Kubernetes) declare(s *config.Section) {
	s.String(&c.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster").Shown("the service account of the executor's own pod")
	s.String(&c.Namespace, "jobs-namespace", "switchyard-jobs", "namespace of jobs' pods").Check(func() error { return namespace(c.Namespace) })
	s.TextMap(&c.TenantNamespaces, "tenant-namespaces", "namespace of the pods of a tenant's jobs, by tenant; those of all others are in jobs_namespace").Check(func() error {
		for tenant, name := range c.TenantNamespaces {
			if err := namespace(name); err != nil {
				return fmt.Errorf("%s: %q: %w", tenant, name, err)
			}
		}
		return nil
	})
	s.String(&c.Image, "pod-image", "", "image of jobs that name none; without it they are refused on Kubernetes")
	s.String(&c.PullPolicy, "pod-image-pull-policy", "IfNotPresent", "when nodes pull images").OneOf("Always", "IfNotPresent", "Never")
	s.Strings(&c.VolumeRoots, "pod-volume-root", []string{"/data", "/home", "/mnt", "/srv"},
		"folders of the nodes below which jobs' folders may be; PATH=pvc:NAME is a claim, PATH=nfs:SERVER:/EXPORT an export").As("pod_volume_roots").
		Check(func() error {
			for _, root := range c.VolumeRoots {
				if err := volumeRoot(root); err != nil {
					return fmt.Errorf("%q: %w", root, err)
				}
			}
			return nil
		})
	s.String(&c.DatasetsDir, "pod-datasets-dir", "",
		"folder that jobs which name none see at /data, below one of pod_volume_roots; {user} is the user of the job, e.g. /home/{user}/datasets (empty: they have no /data)").
		Check(func() error { return absoluteOrNone(c.DatasetsDir) })
	s.String(&c.SnapshotsRoot, "pod-snapshots-root", "/var/lib/switchyard/snapshots",
		"folder of the snapshots of jobs that name none: of the nodes, or PATH=pvc:NAME or PATH=nfs:SERVER:/EXPORT").Check(func() error { return volumeRoot(c.SnapshotsRoot) })
	s.String(&c.DataImage, "pod-data-image", "", "image of the executor, whose container fetches the data_url of jobs that run as pods; without it they are refused")
	s.String(&c.DataRoot, "pod-data-root", "",
		"folder in which pods share what their data_url names: of the nodes, or PATH=pvc:NAME or PATH=nfs:SERVER:/EXPORT (empty: each pod fetches it for itself)").Check(func() error {
		if c.DataRoot == "" {
			return nil
		}
		return volumeRoot(c.DataRoot)
	})
	taint := regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
	s.Strings(&c.Tolerate, "pod-tolerate", []string{"nvidia.com/gpu"}, "keys of taints that jobs' pods tolerate").Check(func() error {
		for _, key := range c.Tolerate {
			if !taint.MatchString(key) {
				return fmt.Errorf("%q: want the key of a taint, e.g. nvidia.com/gpu", key)
			}
		}
		return nil
	})
	amount := regexp.MustCompile(`^([1-9][0-9]*(\.[0-9]+)?|0?\.[0-9]*[1-9][0-9]*)([KMGTPE]i|[kMGTPE]|[eE][0-9]{1,2})?$`)
	s.String(&c.MemoryLimit, "pod-memory-limit", "", "main memory that a pod may use, e.g. 64Gi (empty: no limit)").Check(func() error {
		if c.MemoryLimit != "" && !amount.MatchString(c.MemoryLimit) {
			return errors.New("want an amount such as 64Gi")
		}
		return nil
	})
	s.Int(&c.RunAsUser, "pod-run-as-user", -1, "user id of jobs' processes; -1 leaves it to the image").AtLeast(-1)
	s.Duration(&c.StartLimit, "pod-start-limit", 5*time.Minute, "how long the start of all pods of a job may take; then all are removed and tried again").Above(0)
	s.Duration(&c.ScheduleLimit, "pod-schedule-limit", 30*time.Second, "how long a pod may wait for its node to have room").Above(0)
	s.Duration(&c.NodeLostAfter, "node-lost-after", 2*time.Minute, "how long a node may be silent before its pods are given up").Above(0)
}

// NamespaceOf returns the namespace of the pods of a tenant's jobs.
func (c *Kubernetes) NamespaceOf(tenant string) string {
	return cmp.Or(c.TenantNamespaces[tenant], c.Namespace)
}

// Namespaces returns all namespaces of jobs' pods.
func (c *Kubernetes) Namespaces() []string {
	all := append(slices.Collect(maps.Values(c.TenantNamespaces)), c.Namespace)
	slices.Sort(all)
	return slices.Compact(all)
}

func namespace(text string) error {
	if len(text) > 63 || !regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`).MatchString(text) {
		return errors.New("want the name of a namespace")
	}
	return nil
}

// volumeRoot checks the form of a folder of jobs' pods; the executor reads it.
func volumeRoot(text string) error {
	folder, source, given := strings.Cut(text, "=")
	if !strings.HasPrefix(folder, "/") || folder == "/" || given && !strings.HasPrefix(source, "pvc:") && !strings.HasPrefix(source, "nfs:") {
		return errors.New("want an absolute path other than /, PATH=pvc:NAME or PATH=nfs:SERVER:/EXPORT")
	}
	return nil
}

// DataNetworks are the networks of DataAllow.
func (c *Executor) DataNetworks() []netip.Prefix {
	all, _ := prefixes(c.DataAllow) // checked when the settings were read
	return all
}

// prefixes reads networks.
func prefixes(texts []string) ([]netip.Prefix, error) {
	all := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		var err error
		if all[i], err = netip.ParsePrefix(text); err != nil {
			return nil, fmt.Errorf("%q: want a network such as 127.0.0.1/32", text)
		}
	}
	return all, nil
}
