// Package settings declares every setting of Switchyard: which section of switchyard.yaml it belongs to, its type,
// default, bounds and meaning. The services take their part of it as they start; the command line checks and shows a
// file without them.
//
// Checks that need a file or the machine belong to the service.
package settings

import (
	"strings"

	"github.com/switchyard-dl/switchyard/libs/config"
)

// All is the whole configuration.
type All struct {
	Common
	Admission   Admission
	Planner     Planner
	Profiler    Profiler
	Executor    Executor
	NodeAgent   NodeAgent
	Energy      Energy
	Experiments Experiments
	Web         Web
}

// The names of the sections of services.
const (
	AdmissionSection   = "admission"
	PlannerSection     = "planner"
	ProfilerSection    = "profiler"
	ExecutorSection    = "executor"
	NodeAgentSection   = "nodeagent"
	EnergySection      = "energy"
	ExperimentsSection = "experiments"
	WebSection         = "web"
)

// Declare declares all settings in set.
func (a *All) Declare(set *config.Set) {
	a.Common.Declare(set)
	a.Admission.Declare(set)
	a.Admission.RunAs, a.NodeAgent.RunAs = &a.Executor.RunAs, &a.Executor.RunAs
	a.Planner.Declare(set)
	a.Profiler.Declare(set)
	a.Executor.Declare(set)
	a.NodeAgent.Declare(set)
	a.Energy.Declare(set)
	a.Experiments.Declare(set)
	a.Web.Declare(set)
	set.Gone(gone()...)
}

// gone are the settings of earlier versions that nobody needed.
func gone() []config.Gone {
	return []config.Gone{
		{Name: "heartbeat-steps", Instead: "code sends a heartbeat every 10 steps, and the node agent passes on two in a second"},
		{Name: "kube-concurrency", Instead: "the pods of 16 attempts are created or removed at the same time"},
		{Name: "kube-qps", Instead: "the executor sends up to 1000 requests in a second, and Kubernetes says if that is too much"},
		{Name: "meter-name", Instead: "meters are found by the name of the host, of the node in Kubernetes, or data.node if that is set"},
		{Name: "probe-classes", Instead: "probes have DSCP 0, the class of jobs' own packets"},
		{Name: "probe-first-port", Instead: "probes leave from the ports 28400 and following"},
		{Name: "probe-identify", Instead: "two links that lose packets at once are told apart on up to 16 nodes, else one"},
		{Name: "probe-trace-interval", Instead: "paths are found again every 10 minutes, and when nodes change"},
	}
}

// New makes the whole configuration with its defaults, and the set that fills it.
func New() (*All, *config.Set) {
	a, set := &All{}, config.New()
	a.Declare(set)
	return a, set
}

// Of makes a configuration from words such as --policy fifo, whether the setting has a flag or not: for tests, and
// programs that hold services.
func Of(words ...string) (*All, error) {
	a, set := New()
	return a, set.Apply(words...)
}

// Process holds the settings of a process as flags and environment.
type Process struct{ Flags, Environ []string }

// Words turns words such as --policy fifo and --plan-interval=5s into the flags of a process and, for settings without
// a flag, its environment. Other words stay where they are.
func Words(words ...string) Process {
	_, set := New()
	var p Process
	for i := 0; i < len(words); i++ {
		name, value, whole := strings.Cut(strings.TrimPrefix(words[i], "--"), "=")
		setting := set.Find(name)
		if setting == nil || setting.Typed() {
			p.Flags = append(p.Flags, words[i])
			continue
		}
		if !whole && i+1 < len(words) {
			i++
			value = words[i]
		}
		p.Environ = append(p.Environ, setting.Variable()+"="+value)
	}
	return p
}
