// Package doctor surveys a machine and says what Switchyard can use of it, and what each absence costs.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/sibling"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Command makes the command of this package.
func Command(a *console.Console) *cobra.Command {
	var dataDir, kubeletRoot, podLogs string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine, and say what does not work without what is missing",
		Long: `Checks the machine, the bus, the container runtimes, the kubelet and Python. "ok" is present, "--" is missing (with what does
not work without it, and how to change that), "!!" is required and broken. The exit code is 1 only if something required is broken.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 30*time.Second)
			defer cancel()
			return printFindings(a, findings(surveyMachine(ctx, a, cmp.Or(dataDir, a.DataDir()), kubeletRoot, podLogs)))
		},
	}
	console.DataDirFlag(cmd.Flags(), &dataDir, "data folder to look at")
	cmd.Flags().StringVar(&kubeletRoot, "kubelet-root", "/var/lib/kubelet", "root folder of a kubelet to look at")
	cmd.Flags().StringVar(&podLogs, "pod-logs", "/var/log/pods", "folder of pods' logs to look at")
	return cmd
}

// The verdicts of doctor.
const (
	verdictOK     = "ok"
	verdictAbsent = "absent"
	verdictBroken = "broken"
)

// finding is the result of one check.
type finding struct {
	Name    string `json:"name"`
	Verdict string `json:"verdict"`
	Detail  string `json:"detail"`
	// Costs says what does not work without it, Fix how to get it.
	Costs string `json:"costs,omitempty"`
	Fix   string `json:"fix,omitempty"`
}

func present(name, detail string) finding {
	return finding{Name: name, Verdict: verdictOK, Detail: detail}
}

func absent(name, detail, costs, fix string) finding {
	return finding{Name: name, Verdict: verdictAbsent, Detail: detail, Costs: costs, Fix: fix}
}

// survey holds what doctor found on a machine.
type survey struct {
	Kernel, Arch string
	// Supervisor is the program that supervises jobs; empty if it is not where Server looks for it.
	Server, Supervisor string
	Cores              int
	Memory             unit.Bytes
	Root               bool
	// GPUs are as nvidia-smi lists them; GPUTrouble is why it lists none.
	GPUs       []string
	GPUTrouble string
	Driver     driverSurvey
	Engines    []engineSurvey
	Kubelet    kubeletSurvey
	// RAPLZones counts the energy counters, RAPLReadable those that can be read.
	RAPLZones, RAPLReadable int
	// PerfEvents is the number of performance events that can be counted, PerfHardware how many of them are hardware
	// events. PerfTrouble is the reason if there are none.
	PerfEvents, PerfHardware int
	PerfTrouble              string
	Cgroup                   int
	// MountTrouble is the reason why this process may not make a mount namespace, or empty; MountFix is the way to
	// change that.
	MountTrouble, MountFix string
	// Containers are the runtimes that answer; ContainerTrouble says why the others do not.
	Containers       []string
	ContainerTrouble string
	// JobsDir is the folder of the launcher, if it is there; QuotaTrouble is why no project quotas bound what is in it.
	JobsDir, QuotaTrouble string
	// Python and Torch are versions. Packages says which of Switchyard's packages can be imported.
	Python, Torch string
	Packages      map[string]bool
	BusURL        string
	BusUp         bool
	// BusTrouble is the reason why this user may not use the installation of the machine, or empty; BusFix is the way to
	// change that.
	BusTrouble, BusFix string
	Nodes              []*train.Node
	// Usage is how full the streams and buckets of the bus are.
	Usage      []bus.Usage
	SurveyedAt time.Time
	// Port is the bus's default one, PortTrouble why it cannot be taken.
	Port        int
	PortTrouble string
	DataDir     string
	DataTrouble string
	DataFree    unit.Bytes
}

// findings returns the results for a survey.
func findings(s survey) []finding {
	list := []finding{
		present("kernel", s.Kernel+" "+s.Arch),
		present("processor", fmt.Sprintf("%s, %s of memory", render.Plural(s.Cores, "core"), s.Memory)),
		gpuFinding(s), raplFinding(s), perfFinding(s), cgroupFinding(s), mountFinding(s), containerFinding(s), pythonFinding(s),
	}
	if s.JobsDir != "" {
		list = append(list, quotaFinding(s))
	}
	if s.Python != "" {
		list = append(list, torchFinding(s), packageFinding(s))
	}
	if s.Server != "" {
		list = append(list, supervisorFinding(s))
	}
	list = append(list, kubernetesFindings(s)...)
	list = append(list, dataFinding(s), busFinding(s))
	if len(s.Usage) > 0 {
		list = append(list, storageFinding(s.Usage))
	}
	for _, n := range s.Nodes {
		list = append(list, nodeFinding(n, s.SurveyedAt))
	}
	return list
}

func gpuFinding(s survey) finding {
	if len(s.GPUs) > 0 {
		return present("GPU", strings.Join(s.GPUs, "; "))
	}
	return absent("GPU", s.GPUTrouble,
		"jobs get processor cores as devices (CPU slots)",
		"install NVIDIA's driver if there is a GPU; Switchyard needs nothing else")
}

func supervisorFinding(s survey) finding {
	if s.Supervisor != "" {
		return present("supervisor", s.Supervisor)
	}
	return absent("supervisor", sibling.Supervisor+" is not beside "+s.Server,
		"the server supervises each job itself: jobs start later, and each takes some 20 MiB more memory", "build it with `make build`, and install it there")
}

func raplFinding(s survey) finding {
	const costs = "the energy of processor and memory is modelled, not measured, and marked so"
	switch {
	case s.RAPLReadable > 0:
		return present("RAPL", render.Plural(s.RAPLReadable, "energy counter")+" can be read")
	case s.RAPLZones > 0:
		return absent("RAPL", "permission denied", costs,
			"let the agent's group read them (the unit of a package does): chgrp GROUP /sys/class/powercap/*/energy_uj, and chmod g+r, again after each boot")
	}
	return absent("RAPL", "the kernel shows no energy counters", costs,
		"run on the machine itself, not in a virtual machine; modprobe intel_rapl_common")
}

func perfFinding(s survey) finding {
	const asked = 58
	switch {
	case s.PerfTrouble != "":
		return absent("counters", s.PerfTrouble,
			"workloads are not recognised by hardware events",
			"run the node agent with CAP_PERFMON, or sysctl kernel.perf_event_paranoid=0; not in a sandbox")
	case s.PerfHardware == 0:
		return absent("counters", fmt.Sprintf("no hardware events; %s by the kernel", render.Plural(s.PerfEvents, "event")),
			"workloads are recognised by software events only", "run on the machine itself, not in a virtual machine")
	}
	return present("counters", fmt.Sprintf("%d of %d hardware events", s.PerfHardware, asked))
}

func cgroupFinding(s survey) finding {
	if s.Cgroup > 0 {
		return present("cgroups", fmt.Sprintf("version %d", s.Cgroup))
	}
	return absent("cgroups", "not mounted",
		"the node agent does not see limits on its cores and memory", "mount -t cgroup2 none /sys/fs/cgroup")
}

func mountFinding(s survey) finding {
	if s.MountTrouble == "" {
		return present("mounts", "jobs see their folders as /custom, /snapshots and /data")
	}
	return absent("mounts", s.MountTrouble,
		"jobs find their folders by SWITCHYARD_CUSTOM_DIR, _SNAPSHOTS_DIR and _DATA_DIR instead", s.MountFix)
}

func quotaFinding(s survey) finding {
	if s.QuotaTrouble == "" {
		return present("quotas", s.JobsDir+" has project quotas: switchyard install --job-disk bounds the space of each job")
	}
	return absent("quotas", s.QuotaTrouble, "a job can fill the disk of "+s.JobsDir, "mount it from a file system with project quotas (docs/operations.md)")
}

func containerFinding(s survey) finding {
	if len(s.Containers) > 0 {
		return present("containers", strings.Join(s.Containers, "; "))
	}
	return absent("containers", s.ContainerTrouble,
		"jobs with an image are refused; commands and scripts run as processes",
		"install docker or podman, start it, and let this user use it")
}

func pythonFinding(s survey) finding {
	if s.Python != "" {
		return present("Python", s.Python)
	}
	return absent("Python", "no python3 in PATH",
		"jobs with a script_path run here only in an image of their own", "install python3")
}

func torchFinding(s survey) finding {
	if s.Torch != "" {
		return present("PyTorch", s.Torch)
	}
	return absent("PyTorch", "this python3 has no torch",
		"scripts that import it need an image or a Python of their own", "pip install torch")
}

func packageFinding(s survey) finding {
	var missing []string
	for _, name := range packageNames() {
		if !s.Packages[name] {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return present("packages", strings.Join(packageNames(), " and ")+" can be imported")
	}
	return absent("packages", "this python3 cannot import "+strings.Join(missing, " and "),
		"nothing under `switchyard up`, which gives jobs the packages; services run one by one need executor.python_path, images an installation",
		"pip install ./libs/python, to import them outside of jobs too")
}

// packageNames are the product's own packages for training code.
func packageNames() []string { return []string{"switchyard", "kubernetesdlprofile"} }

// lowSpace is the free space below which doctor warns: the bus alone may need gigabytes.
const lowSpace = 2 * unit.GiB

func dataFinding(s survey) finding {
	if s.DataTrouble != "" {
		return finding{
			Name: "data", Verdict: verdictBroken, Detail: s.DataTrouble, Costs: "neither the bus nor jobs can store anything", Fix: "name another folder: --data-dir DIR",
		}
	}
	detail := fmt.Sprintf("%s, %s free", s.DataDir, s.DataFree)
	if s.DataFree >= lowSpace {
		return present("data", detail)
	}
	return absent("data", detail, "a full disk stops the bus, and with it submissions and plans", "make room, or name another folder: --data-dir DIR")
}

func busFinding(s survey) finding {
	switch {
	case s.BusUp:
		return present("bus", s.BusURL)
	case s.BusTrouble != "":
		return finding{Name: "bus", Verdict: verdictBroken, Detail: s.BusTrouble, Costs: "no job can be submitted", Fix: s.BusFix}
	case s.PortTrouble != "":
		return finding{
			Name: "bus", Verdict: verdictBroken, Detail: fmt.Sprintf("none at %s, and port %d cannot be used: %s", s.BusURL, s.Port, s.PortTrouble),
			Costs: "`switchyard up` cannot start with its defaults", Fix: "`switchyard up --port 0` takes a free one",
		}
	}
	return absent("bus", fmt.Sprintf("none at %s; port %d is free", s.BusURL, s.Port),
		"no job can be submitted", "`switchyard up` starts one, --nats names one")
}

// storageFinding reports the fullest of the streams and buckets that refuse messages when they are full.
func storageFinding(all []bus.Usage) finding {
	var fullest bus.Usage
	for _, u := range all {
		if u.Refuses && u.Share() >= fullest.Share() {
			fullest = u
		}
	}
	detail := fmt.Sprintf("the fullest stream of the bus is %s, %.0f %% of %s", fullest.Name, 100*fullest.Share(), unit.Bytes(fullest.MaxBytes))
	if !fullest.AlmostFull() {
		return present("storage", detail)
	}
	return absent("storage", detail, "when it is full, jobs can neither be submitted nor report",
		"facts of jobs are deleted after 30 days, records after admission.keep_records; docs/operations.md lists what can be removed by hand")
}

func nodeFinding(n *train.Node, now time.Time) finding {
	detail := fmt.Sprintf("%s: %s", n.ID, render.Plural(len(n.Devices), "device"))
	if len(n.Devices) > 0 {
		kind := string(n.Devices[0].Kind)
		if n.Devices[0].Simulated {
			kind = "simulated " + kind
		}
		detail += " (" + kind + ")"
	}
	if len(n.Meters) > 0 {
		detail += ", energy by " + strings.Join(n.Meters, " and ")
	}
	var troubles []string
	for _, meter := range slices.Sorted(maps.Keys(n.MeterTroubles)) {
		troubles = append(troubles, meter+": "+n.MeterTroubles[meter])
	}
	if age := now.Sub(n.SeenAt); age > train.NodeStale {
		return absent("node", fmt.Sprintf("%s, last seen %s ago", detail, render.Duration(age.Seconds())),
			"nothing new is placed on it", "start its node agent")
	}
	if n.DiskTrouble != "" {
		return absent("node", detail+"; "+n.DiskTrouble, "no job is started on it", "make room there: `switchyard purge` removes what ended jobs left")
	}
	if len(troubles) > 0 {
		return absent("node", detail+"; "+strings.Join(troubles, "; "),
			"the energy of these meters is not measured",
			"see the settings of meters in docs/configuration.md; the node is fine otherwise")
	}
	return present("node", detail)
}

// findingsText formats findings for people.
func findingsText(list []finding) string {
	var b strings.Builder
	marks := map[string]string{verdictOK: "ok", verdictAbsent: "--", verdictBroken: "!!"}
	for _, f := range list {
		fmt.Fprintf(&b, "%s  %-11s %s\n", marks[f.Verdict], f.Name, render.EscapeText(f.Detail))
		if f.Costs != "" {
			fmt.Fprintf(&b, "    %-11s costs: %s\n", "", f.Costs)
		}
		if f.Fix != "" {
			fmt.Fprintf(&b, "    %-11s fix:   %s\n", "", f.Fix)
		}
	}
	return b.String()
}

func printFindings(a *console.Console, list []finding) error {
	broken := 0
	for _, f := range list {
		if f.Verdict == verdictBroken {
			broken++
		}
	}
	if a.Output == "json" {
		if err := a.PrintJSON(list); err != nil {
			return err
		}
	} else if _, err := fmt.Fprint(a.Stdout, findingsText(list)); err != nil {
		return err
	}
	if broken > 0 {
		return exit.Errorf(exit.Failed, "", "%s that Switchyard needs is broken", render.Plural(broken, "thing"))
	}
	return nil
}
