package settings

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/config"
)

// Planner configures which job gets which devices.
type Planner struct {
	Policy             string
	PlanInterval       time.Duration
	RestartPrice       time.Duration
	RescaleMinInterval time.Duration
	MaxRestartsPerHour int
	PreemptUnsaved     bool
	StarvationBound    time.Duration
	UsageHalfLife      time.Duration
	FairnessBound      float64
	EnergyWeight       float64
	EnergyRates        string
	CarbonWeight       float64
	PowerBudgetWatts   float64
	PowerLimits        []float64
	LinkLossBound      float64
	Quotas             map[string]int
	ProbeCoverage      int
	ProbePeers         int
	ProbePorts         int
	Topology           string
	RackLabel          string
}

// Policies are the names of the live policies.
func Policies() []string { return []string{"fifo", "optimus", "srtf", "switchyard"} }

// DefaultPolicy is the policy if none is configured.
const DefaultPolicy = "switchyard"

// Declare declares the section planner.
func (c *Planner) Declare(set *config.Set) {
	s := set.Section(PlannerSection, "The planner decides which job runs on which devices.")
	s.String(&c.Policy, "policy", DefaultPolicy, "policy that gives devices to jobs").Flag().OneOf(Policies()...)
	s.Duration(&c.PlanInterval, "plan-interval", 5*time.Second, "time between two decisions while nothing changes, longer for a long queue; changes are decided on at once").Between(0.1, time.Hour.Seconds())
	s.IntMap(&c.Quotas, "quota", "the most devices that the jobs of a tenant may hold together; as a flag TENANT=DEVICES (repeatable)").As("quotas").Flag().Check(func() error {
		for _, tenant := range slices.Sorted(maps.Keys(c.Quotas)) {
			if c.Quotas[tenant] < 0 {
				return fmt.Errorf("%s=%d: want 0 or more", tenant, c.Quotas[tenant])
			}
		}
		return nil
	})
	s.Float(&c.PowerBudgetWatts, "power-budget-watts", 0, "the most that all devices together may be predicted to draw (0: no bound)").Flag().Between(0, math.MaxFloat64)
	s.Duration(&c.StarvationBound, "starvation-bound", time.Hour,
		"a job that has waited longer goes before others of its priority (policy switchyard), and has devices reserved (every policy)").Above(0)
	s.Duration(&c.UsageHalfLife, "usage-half-life", 7*24*time.Hour, "time after which device time that a tenant has used counts half against its shares").Above(0)
	s.Float(&c.FairnessBound, "fairness-bound", 0, "finish-time fairness beyond which a job gets its fair share before others, e.g. 4 (0: none; policy switchyard)").Check(func() error {
		if !(c.FairnessBound == 0 || c.FairnessBound >= 1 && !math.IsInf(c.FairnessBound, 0)) {
			return errors.New("want 0, or 1 or more")
		}
		return nil
	})
	s.Duration(&c.RestartPrice, "restart-price", 0, "assumed cost of a restart of a job (0: the mean of those seen)").AtLeast(0)
	s.Duration(&c.RescaleMinInterval, "rescale-min-interval", 10*time.Second, "least time, and at least one epoch, between two changes of a job's size").Above(0)
	s.Int(&c.MaxRestartsPerHour, "max-restarts-per-hour", 6,
		"how often a job is resized or moved for speed within an hour; higher priorities may still take its devices").AtLeast(1)
	s.Bool(&c.PreemptUnsaved, "preempt-unsaved", false, "let a job of higher priority take devices of a job without a checkpoint, whose work is then lost")
	s.Float(&c.EnergyWeight, "energy-weight", 0, "weight of energy against time for jobs that have none of their own (policy switchyard)").Between(0, 1)
	s.String(&c.EnergyRates, "energy-rates", "",
		"CSV file with the columns datetime, grams_per_kwh and price_per_kwh, forecasts included (empty: energy.tariff)")
	s.Float(&c.CarbonWeight, "carbon-weight", 0.5, "weight of carbon against price for deferred jobs").Between(0, 1)
	const mostWatts = 10_000
	s.Floats(&c.PowerLimits, "power-limits", nil,
		"power limits in watts to try on the GPUs of a running job whose energy counts, e.g. 150, 200, 250, 300 (empty: none)").Check(func() error {
		for _, watts := range c.PowerLimits {
			if !(watts > 0 && watts <= mostWatts) {
				return fmt.Errorf("want more than 0 and at most %d W", mostWatts)
			}
		}
		return nil
	})
	s.Float(&c.LinkLossBound, "link-loss-bound", 0.001, "share of the packets that a link may lose before jobs over several nodes avoid it").Above(0).Below(1)
	s.Int(&c.ProbeCoverage, "probe-coverage", 3, "least number of probed paths that cross each link of the network").Between(1, 100)
	const mostPeers, mostPorts = 1024, 64
	s.Int(&c.ProbePeers, "probe-peers", 16, "the most other nodes that a node probes").Between(1, mostPeers)
	s.Int(&c.ProbePorts, "probe-ports", 4, "source ports towards each other node: switches choose among equal paths by them").Between(1, mostPorts)
	s.String(&c.Topology, "topology", "", "file of the network, in the form that `switchyard net plan` reads, for the names of links (empty: addresses)")
	s.String(&c.RackLabel, "rack-label", "switchyard.dev/rack", "node label that names the rack, for networks whose switches do not answer")
}

// Profiler configures how models of running jobs are fitted.
type Profiler struct{ RefitInterval time.Duration }

// Declare declares the section profiler.
func (c *Profiler) Declare(set *config.Set) {
	s := set.Section(ProfilerSection, "The profiler fits models of convergence and speed to what jobs report.")
	s.Duration(&c.RefitInterval, "refit-interval", 3*time.Second, "least time between two fits of a job from heartbeats alone; the end of an epoch leads to a fit at once").
		Between(0.1, time.Hour.Seconds())
}

// Experiments configures the service experiments, which has no settings: each experiment's file has its own.
type Experiments struct{}

// Declare declares the section experiments.
func (*Experiments) Declare(set *config.Set) {
	set.Section(ExperimentsSection, "The experiments service has no settings: each experiment file says what it wants ([experiments.md](experiments.md)).")
}
