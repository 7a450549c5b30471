package kube

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/staging"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew")

func gpu(n, uuid string, simulated bool) train.Device {
	return train.Device{
		ID: train.DeviceID("gpu:" + n), Kind: train.KindGPU, UUID: "GPU-" + uuid, Memory: 16 * unit.GiB, Resource: "switchyard.dev/gpu-" + uuid, Units: 16, Simulated: simulated,
	}
}

func setting(places ...launch.Place) launch.Setting {
	a := train.Attempt{Job: "job-a", Number: 3, Generation: 7, StartedEpochs: 4, TokenHash: "0123456789abcdef0123", Backend: train.BackendKubernetes}
	var parts []train.Part
	for _, p := range places {
		part := train.Part{Node: p.Node.ID}
		for _, d := range p.Devices {
			part.Devices = append(part.Devices, d.ID)
		}
		parts = append(parts, part)
	}
	a.SetPlaces(parts)
	return launch.Setting{
		Job: "job-a", Attempt: a, Places: places, Capability: "capability", Token: "token", Restarted: true, HeartbeatSteps: 10,
		Spec: train.Spec{Command: []string{"train", "--name", "$(HOME)"}, Image: "trainer:1", BatchSize: 32, TrainingSetSize: 6400, MaxEpochs: 12, Launch: train.LaunchPerNode},
	}
}

func defaults() Options {
	return Options{
		Namespace: "jobs", PullPolicy: "IfNotPresent", VolumeRoots: []string{"/home", "/mnt/team=pvc:team", "/nfs=nfs:files.example:/export"}, SnapshotsRoot: "/var/lib/switchyard/snapshots", RunAsUser: -1, Tolerate: []string{"nvidia.com/gpu"},
		StartLimit: time.Minute, ScheduleLimit: time.Minute, NodeLostAfter: time.Minute,
	}
}

// The pods as they are sent to Kubernetes.
func TestPods(t *testing.T) {
	one := launch.Place{Node: train.Node{ID: "n1", Name: "n1.example", JobAPI: "192.168.0.1:8099", JobAPISocket: "/run/x"}, Devices: []train.Device{gpu("0", "aa", false), gpu("1", "bb", false)}}
	two := launch.Place{Node: train.Node{ID: "n2", Name: "n2.example", JobAPI: "192.168.0.2:8099"}, Devices: []train.Device{gpu("0", "cc", true)}}
	folders := setting(one)
	folders.Spec.CustomDir, folders.Spec.DatasetsDir, folders.Spec.SnapshotsDir, folders.Spec.Env = "/home/me/code", "/nfs/mnist", "/mnt/team/saved", map[string]string{"JOB_UUID": "forged", "MINE": "$(yes)"}
	folders.Spec.Ports = []train.PortMapping{{NodePort: 30080, ContainerPort: 8000}}
	secrets := setting(one)
	secrets.Spec.SecretEnv = map[string]string{"WANDB_API_KEY": "secret:wandb/key"}
	servers := setting(one, two)
	servers.Spec.Strategy, servers.Spec.ParameterServers = train.StrategyParameterServer, &train.ServersSpec{Max: 2, Cores: 3, MemoryMiB: 512}
	servers.Spec.Cores, servers.Spec.MainMemoryMiB, servers.Places[1].Servers = 1, 256, 1
	perDevice := setting(one)
	perDevice.Spec.Launch = train.LaunchPerDevice
	part := setting(launch.Place{Node: one.Node, Devices: one.Devices[:1]})
	part.Places[0].Memory, part.Spec.EstimatedMemoryMiB = 6*unit.GiB, 5500
	each := setting(launch.Place{Node: one.Node, Devices: one.Devices, Memory: 6 * unit.GiB})
	each.Spec.Launch = train.LaunchPerDevice
	bounded := setting(launch.Place{Node: one.Node, Devices: []train.Device{gpu("0", "aa", false), gpu("1", "bb", false)}, Memory: 6 * unit.GiB})
	bounded.Places[0].Node.MPSDir = "/tmp/nvidia-mps"
	for i := range bounded.Places[0].Devices {
		bounded.Places[0].Devices[i].Enforcement = train.EnforcedByMPS
	}
	strict := defaults()
	strict.RunAsUser, strict.MemoryLimit, strict.SnapshotsRoot = 1000, "4Gi", "/snap=pvc:snap"
	slots := setting(launch.Place{Node: one.Node, Devices: []train.Device{{ID: "cpu:0", Kind: train.KindCPU}, {ID: "cpu:1", Kind: train.KindCPU}}})
	tuned, asked := slots, setting(launch.Place{Node: one.Node, Devices: one.Devices[:1]})
	tuned.Attempt.Setting.Values = map[string]float64{"cores": 1, "memory_mib": 512}
	asked.Spec.Cores, asked.Spec.MainMemoryMiB = 3, 2048
	whole := setting(launch.Place{Node: one.Node, Devices: []train.Device{gpu("0", "aa", false), gpu("1", "bb", false)}})
	whole.Spec.Env = map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"}
	for i := range whole.Places[0].Devices {
		d := &whole.Places[0].Devices[i]
		d.Resource, d.Units, d.Enforcement = "nvidia.com/gpu", 1, train.GivenWhole
	}
	claimed := setting(launch.Place{Node: one.Node, Devices: []train.Device{gpu("0", "aa", false)}, Memory: 6 * unit.GiB})
	claimed.Places[0].Devices[0].Resource, claimed.Places[0].Devices[0].Class = "", "gpu.switchyard.dev"
	fetching, shared := setting(one), strict
	fetching.Spec.DataURL = "https://data.example/mnist?x=$(y)"
	shared.DataImage, shared.DataRoot = "executor:1", "/cache=pvc:cache"
	apart := defaults()
	apart.DataImage = "executor:1"
	for _, test := range []struct {
		name         string
		s            launch.Setting
		options      Options
		rank         int
		rendezvousIP string
	}{
		{"two-gpus-with-folders", folders, defaults(), 0, ""},
		{"secret-variables", secrets, defaults(), 0, ""},
		{"gang-first", setting(one, two), defaults(), 0, ""},
		{"gang-second", setting(one, two), defaults(), 1, "10.1.0.1"},
		{"servers-scheduler", servers, defaults(), 0, ""},
		{"servers-server", servers, defaults(), 1, "10.1.0.1"},
		{"servers-worker", servers, defaults(), 3, "10.1.0.1"},
		{"one-process-per-device", perDevice, defaults(), 1, "10.1.0.1"},
		{"part-of-a-gpu", part, defaults(), 0, ""},
		{"part-per-process", each, defaults(), 1, "10.1.0.1"},
		{"parts-of-two-gpus-by-mps", bounded, defaults(), 0, ""},
		{"slots-strict", slots, strict, 0, ""},
		{"slots-of-a-trial", tuned, defaults(), 0, ""},
		{"gpu-with-cores-and-memory", asked, defaults(), 0, ""},
		{"gpus-of-another-plugin", whole, defaults(), 0, ""},
		{"part-of-a-claimed-gpu", claimed, defaults(), 0, ""},
		{"data-in-a-claim", fetching, shared, 0, ""},
		{"data-of-its-own", fetching, apart, 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			o, err := newPodTemplate(test.s, key{"jobs", test.s.Job, test.s.Attempt.Number}, test.options, 5*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if test.s.Spec.DataURL != "" {
				o.order = staging.Order{URL: test.s.Spec.DataURL, Reader: readerOf(test.s.Attempt), At: time.Unix(0, 0).UTC(), Live: []string{"job-b.1"}}
			}
			o.owner = metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: o.key.base(), UID: "uid"}
			var got bytes.Buffer
			asYAML := json.NewSerializerWithOptions(json.DefaultMetaFactory, nil, nil, json.SerializerOptions{Yaml: true})
			if err := asYAML.Encode(o.pod(test.rank, test.rendezvousIP), &got); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", test.name+".yaml")
			if *rewrite {
				if err := os.WriteFile(path, got.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
		})
	}
}

// TestJobsFindTheirDatasets: the folder at /data of jobs that name none.
func TestJobsFindTheirDatasets(t *testing.T) {
	for name, test := range map[string]struct{ folder, user, named, want string }{
		"none":                       {"", "ann", "", ""},
		"a claim":                    {"/mnt/team/data", "ann", "", "claim team data"},
		"of the user, on the nodes":  {"/home/{user}/datasets", "ann", "", "host /home ann/datasets"},
		"of the user, by NFS":        {"/nfs/home/{user}", "ann", "", "nfs files.example:/export home/ann"},
		"nobody has no folder":       {"/home/{user}/datasets", "", "", ""},
		"a user is no path":          {"/home/{user}/datasets", "../root", "", ""},
		"the job's own comes before": {"/home/{user}/datasets", "ann", "/home/me/mnist", "host /home/me/mnist "},
	} {
		t.Run(name, func(t *testing.T) {
			o, s := defaults(), setting(launch.Place{})
			o.DatasetsDir, s.Spec.User, s.Spec.DatasetsDir = test.folder, test.user, test.named
			v, err := composeVolumes(s, o)
			if err != nil || Check(o) != nil {
				t.Fatal(err, Check(o))
			}
			got := ""
			for i, m := range v.mounts {
				if m.MountPath != launch.DataTarget {
					continue
				}
				switch source := v.sources[i].VolumeSource; {
				case source.HostPath != nil:
					got = "host " + source.HostPath.Path + " " + m.SubPath
				case source.NFS != nil:
					got = "nfs " + source.NFS.Server + ":" + source.NFS.Path + " " + m.SubPath
				case source.PersistentVolumeClaim != nil:
					got = "claim " + source.PersistentVolumeClaim.ClaimName + " " + m.SubPath
				}
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	o := defaults()
	if o.DatasetsDir = "/elsewhere"; !errors.Is(Check(o), errOutside) {
		t.Errorf("outside of the roots: %v", Check(o))
	}
}

// A program that starts the other processes itself cannot enter other pods, so a gang over several is refused.
func TestMpirunStaysInOnePod(t *testing.T) {
	one, two := launch.Place{Node: train.Node{ID: "n1"}, Devices: []train.Device{gpu("0", "aa", false)}}, launch.Place{Node: train.Node{ID: "n2"}, Devices: []train.Device{gpu("0", "bb", false)}}
	for _, test := range []struct {
		program string
		places  []launch.Place
		refused bool
	}{
		{"/usr/bin/mpirun", []launch.Place{one, two}, true}, {"mpirun", []launch.Place{one}, false}, {"torchrun", []launch.Place{one, two}, false},
	} {
		s := setting(test.places...)
		s.Spec.Command = []string{test.program, "python3", "train.py"}
		_, err := newPodTemplate(s, key{"jobs", s.Job, s.Attempt.Number}, defaults(), time.Second)
		if refused := err != nil && strings.Contains(err.Error(), "mpirun cannot start processes in other pods"); refused != test.refused || !refused && err != nil {
			t.Errorf("%s on %d nodes: %v", test.program, len(test.places), err)
		}
	}
}

func TestFoldersStayBelowTheRoots(t *testing.T) {
	for folder, allowed := range map[string]bool{
		"/home/me": true, "/home": true, "/mnt/team/x": true, "/homes/me": false, "/etc": false, "/home/../etc": false, "home/me": false, "/mnt": false,
	} {
		s := setting(launch.Place{})
		s.Spec.DatasetsDir = folder
		if _, err := newPodTemplate(s, key{"jobs", s.Job, s.Attempt.Number}, defaults(), time.Second); errors.Is(err, errOutside) == allowed {
			t.Errorf("%s: %v", folder, err)
		}
	}
	for text, good := range map[string]bool{
		"/a": true, "/a=pvc:b": true, "/": false, "a": false, "/a=b": false, "/a=pvc:": false, "/a/": false, "/a=pvc:B!": false,
		"/a=nfs:server:/": true, "/a=nfs:fd00::1:/b/c": true, "/a=nfs:server": false, "/a=nfs:server:b": false, "/a=nfs::/b": false, "/a=nfs:server:/b/": false,
	} {
		if _, err := parseRoot(text); (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
	}
}
