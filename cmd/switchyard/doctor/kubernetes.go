package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/render"
)

// driverSurvey holds what doctor found out about NVIDIA's driver.
type driverSurvey struct {
	// Cards counts NVIDIA's GPUs on the PCI bus, whether there is a driver or not.
	Cards int
	// Module is the version of the kernel module, Library that of the library. Each is empty if it is missing.
	Module, Library string
}

// engineSurvey is a container engine and its default runtime.
type engineSurvey struct {
	Name, DefaultRuntime string
	// Where is the file that sets it.
	Where string
}

// kubeletSurvey holds what doctor found out about a kubelet.
type kubeletSurvey struct {
	Root string
	// There says that the folder exists. The troubles are reasons why a node agent could not use what is in it, or
	// empty.
	There                          bool
	RegistryTrouble, PodLogTrouble string
	PodLogs                        string
}

// surveyDriver reads below sys and proc, which are /sys and /proc outside of tests.
func surveyDriver(ctx context.Context, sys, proc string) driverSurvey {
	var d driverSurvey
	vendors, _ := filepath.Glob(filepath.Join(sys, "bus/pci/devices/*/vendor")) // the pattern is well-formed
	for _, path := range vendors {
		// Class 0x03 are display controllers: the bus also has NVIDIA's network cards.
		const nvidia, display = "0x10de", "0x03"
		if firstWord(path) == nvidia && strings.HasPrefix(firstWord(filepath.Join(filepath.Dir(path), "class")), display) {
			d.Cards++
		}
	}
	if text, err := os.ReadFile(filepath.Join(proc, "driver/nvidia/version")); err == nil {
		d.Module = driverVersion(string(text))
	}
	out, trouble := Say(ctx, nil, "nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
	if trouble == "" {
		d.Library, _, _ = strings.Cut(out, "\n")
	}
	return d
}

func firstWord(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// driverVersion finds the version in a line such as "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue
// Mar..".
func driverVersion(text string) string {
	return regexp.MustCompile(`\b\d{3,}\.\d+(\.\d+)?\b`).FindString(text)
}

// surveyEngines finds the container engines of a node: it asks docker, and reads the configuration of containerd
// below etc (/etc).
func surveyEngines(ctx context.Context, etc string) []engineSurvey {
	var engines []engineSurvey
	if out, trouble := Say(ctx, nil, "docker", "info", "--format", "{{.DefaultRuntime}}"); trouble == "" {
		engines = append(engines, engineSurvey{Name: "docker", DefaultRuntime: out, Where: filepath.Join(etc, "docker/daemon.json")})
	}
	main := filepath.Join(etc, "containerd/config.toml")
	more, _ := filepath.Glob(filepath.Join(etc, "containerd/conf.d/*.toml")) // the pattern is well-formed
	found, name := false, "runc"
	for _, path := range append([]string{main}, more...) {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		found = true
		for _, match := range regexp.MustCompile(`(?m)^\s*default_runtime_name\s*=\s*["']([^"']*)["']`).FindAllStringSubmatch(string(text), -1) {
			name = match[1]
		}
	}
	if found {
		engines = append(engines, engineSurvey{Name: "containerd", DefaultRuntime: name, Where: main})
	}
	return engines
}

// surveyKubelet looks whether a node agent could offer GPUs to a kubelet and read the logs of pods.
func surveyKubelet(root, podLogs string) kubeletSurvey {
	k := kubeletSurvey{Root: root, PodLogs: podLogs}
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		return k
	}
	k.There = true
	k.RegistryTrouble = folderTrouble(filepath.Join(root, "plugins_registry"), unix.W_OK|unix.X_OK)
	k.PodLogTrouble = folderTrouble(podLogs, unix.R_OK|unix.X_OK)
	return k
}

// folderTrouble returns the reason why this user cannot use a folder with an access mode, or "".
func folderTrouble(path string, mode uint32) string {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return path + " is not there"
	case err != nil:
		return err.Error()
	case !info.IsDir():
		return path + " is no folder"
	case unix.Access(path, mode) != nil:
		return "no permission for " + path
	}
	return ""
}

// kubernetesFindings are about nodes of Kubernetes. On a machine without GPUs and without a kubelet there are few.
func kubernetesFindings(s survey) []finding {
	list := driverFindings(s.Driver)
	// On a single machine, docker and podman get GPUs container by container.
	if s.Kubelet.There && (s.Driver.Cards > 0 || len(s.GPUs) > 0) {
		for _, e := range s.Engines {
			list = append(list, engineFinding(e))
		}
	}
	if !s.Kubelet.There {
		return append(list, absent("kubelet", "no "+s.Kubelet.Root,
			"nothing on one machine; this is no node of Kubernetes",
			"if there is one, set nodeagent.kubelet_root to its root folder"))
	}
	for _, looked := range []struct{ what, trouble, good, costs, fix string }{
		{
			"kubelet", s.Kubelet.RegistryTrouble, filepath.Join(s.Kubelet.Root, "plugins_registry") + " takes the sockets of GPUs",
			"pods get no GPU from this node", "run the node agent as root with this folder mounted; if the kubelet has no such folder, set nodeagent.device_plugin_dir to /var/lib/kubelet/device-plugins",
		},
		{
			"pod logs", s.Kubelet.PodLogTrouble, s.Kubelet.PodLogs + " can be read",
			"`switchyard logs` shows nothing of jobs' pods", "run the node agent as root with this folder mounted; another one (podLogsDir) is nodeagent.pod_logs",
		},
	} {
		f := present(looked.what, looked.good)
		if looked.trouble != "" {
			f = absent(looked.what, looked.trouble, looked.costs, looked.fix)
		}
		list = append(list, f)
	}
	return list
}

// driverFindings returns nothing for a machine without NVIDIA's GPUs, which the finding on GPUs reports.
func driverFindings(d driverSurvey) []finding {
	if d.Cards == 0 && d.Module == "" && d.Library == "" {
		return nil
	}
	return []finding{driverFinding(d)}
}

func driverFinding(d driverSurvey) finding {
	const costs = "no job can use the GPUs of this machine"
	switch {
	case d.Module == "" && d.Library == "":
		return absent("driver", render.Plural(d.Cards, "NVIDIA card")+" on the PCI bus and no driver", costs,
			"install NVIDIA's driver and load it: modprobe nvidia; in a container, run it with NVIDIA's runtime")
	case d.Module == "":
		return absent("driver", "library "+d.Library+" without its kernel module", costs,
			"modprobe nvidia; after an update of the kernel, install the driver again")
	case d.Library == "":
		return absent("driver", "kernel module "+d.Module+", and nvidia-smi does not work with it", costs,
			"install the driver's programs of the same version; after an update, reboot or reload the module (rmmod nvidia_uvm nvidia && modprobe nvidia)")
	case d.Module != d.Library:
		return absent("driver", fmt.Sprintf("kernel module %s, library %s", d.Module, d.Library), costs+" until both are one version",
			"reboot, or reload the module (rmmod nvidia_uvm nvidia && modprobe nvidia)")
	}
	newest := newestCUDA(d.Module)
	if newest == 0 {
		return absent("driver", d.Module, "images made for CUDA 11 and newer do not start", "install a newer driver (525 or later for CUDA 12)")
	}
	return present("driver", fmt.Sprintf("%s, runs programs of CUDA %d and older", d.Module, newest))
}

// newestCUDA returns the newest major version of CUDA whose programs a driver runs, or 0 below 11. The bounds are
// those of NVIDIA's table of minor version compatibility.
func newestCUDA(driver string) int {
	major, _, _ := strings.Cut(driver, ".")
	number, err := strconv.Atoi(major)
	if err != nil {
		return 0
	}
	bounds := []struct{ driver, cuda int }{{580, 13}, {525, 12}, {450, 11}}
	i := slices.IndexFunc(bounds, func(b struct{ driver, cuda int }) bool { return number >= b.driver })
	if i < 0 {
		return 0
	}
	return bounds[i].cuda
}

func engineFinding(e engineSurvey) finding {
	if strings.Contains(e.DefaultRuntime, "nvidia") {
		return present("runtime", e.Name+" starts containers with "+e.DefaultRuntime)
	}
	return absent("runtime", fmt.Sprintf("%s starts containers with %s, not with nvidia", e.Name, e.DefaultRuntime),
		"jobs' pods get device nodes and not the driver's libraries",
		fmt.Sprintf("nvidia-ctk runtime configure --runtime=%s --set-as-default (writes %s), then systemctl restart %s", e.Name, e.Where, e.Name))
}
