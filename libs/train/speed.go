package train

import "math"

// Config is a configuration of a job as far as its speed depends on it: the number of workers, nodes and parameter
// servers, and the samples per worker and step (zero: the job's typical number).
type Config struct {
	Workers    int `json:"workers"`
	Servers    int `json:"servers,omitempty"`
	Nodes      int `json:"nodes"`
	LocalBatch int `json:"local_batch,omitempty"`
}

// SpeedKind names the form of the step-time model.
type SpeedKind string

const (
	// SpeedAllReduce covers one worker alone and data-parallel workers that average their gradients.
	SpeedAllReduce SpeedKind = "all_reduce"
	// SpeedServersSync is for parameter servers whose workers wait for each other, as in Optimus.
	SpeedServersSync SpeedKind = "servers_sync"
	// SpeedServersAsync is for parameter servers whose workers do not wait for each other, as in Optimus.
	SpeedServersAsync SpeedKind = "servers_async"
)

// AllReduce is Pollux's step time (OSDI'21, section 3.2) in seconds. Compute is ComputeFixed + ComputePerSample*batch.
// The network is LocalBase + LocalPerWorker*(n-2) on one node, or CrossBase + CrossPerWorker*(n-2) +
// CrossPerPeer*(n/nodes-1) over several, where the last term is ours: workers of one node share its link. Both parts
// overlap by the exponent: (compute^Overlap + network^Overlap)^(1/Overlap), from 1 (one after the other) to 10 (almost
// hidden).
type AllReduce struct {
	ComputeFixed     float64 `json:"compute_fixed_seconds"`
	ComputePerSample float64 `json:"compute_seconds_per_sample"`
	LocalBase        float64 `json:"local_base_seconds"`
	LocalPerWorker   float64 `json:"local_seconds_per_worker"`
	CrossBase        float64 `json:"cross_base_seconds"`
	CrossPerWorker   float64 `json:"cross_seconds_per_worker"`
	CrossPerPeer     float64 `json:"cross_seconds_per_peer"`
	Overlap          float64 `json:"overlap"`
}

// ComputeSeconds returns the time of one forward and backward pass of one worker, without the network: the cost of one
// more pass when gradients are accumulated.
func (a AllReduce) ComputeSeconds(cfg Config) float64 {
	return a.ComputeFixed + a.ComputePerSample*float64(cfg.LocalBatch)
}

// NetworkSeconds returns the time of the gradient exchange of one step without overlap; zero for one worker.
func (a AllReduce) NetworkSeconds(cfg Config) float64 {
	more := float64(max(cfg.Workers-2, 0))
	switch {
	case cfg.Workers <= 1:
		return 0
	case cfg.Nodes <= 1:
		return a.LocalBase + a.LocalPerWorker*more
	}
	peers := math.Max(float64(cfg.Workers)/float64(cfg.Nodes)-1, 0)
	return a.CrossBase + a.CrossPerWorker*more + a.CrossPerPeer*peers
}

// StepSeconds returns the time of one optimizer step.
func (a AllReduce) StepSeconds(cfg Config) float64 {
	return math.Max(Overlapped(a.ComputeSeconds(cfg), a.NetworkSeconds(cfg), math.Max(a.Overlap, 1)), 0)
}

// Overlapped returns (compute^g + network^g)^(1/g): the time of both if they overlap by the exponent g, from 1 (not at
// all). It takes powers of the ratio, so that no time overflows.
func Overlapped(compute, network, g float64) float64 {
	long, short := math.Max(compute, network), math.Min(compute, network)
	if short <= 0 {
		return long
	}
	return long * math.Pow(1+power(short/long, g), 1/g)
}

// power returns x^g. Most exponents are small whole numbers, for which products are faster than math.Pow.
func power(x, g float64) float64 {
	n := int(g)
	if float64(n) != g {
		return math.Pow(x, g)
	}
	result := 1.0
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			result *= x
		}
		x *= x
	}
	return result
}

// Servers is Optimus's parameter-server model with p servers, w workers and m samples per worker. Synchronous:
// seconds per step = PerSample*m + Fixed + PerShare*w/p + PerWorker*w + PerServer*p (Optimus's t0..t4 with M/w = m).
// Asynchronous: the same without the batch, which Optimus takes as constant, and divided by w, since every worker
// pushes its own steps (Fixed, PerShare, PerWorker, PerServer are Optimus's t0..t3).
type Servers struct {
	PerSample float64 `json:"seconds_per_sample,omitempty"`
	Fixed     float64 `json:"fixed_seconds"`
	PerShare  float64 `json:"seconds_per_share"`
	PerWorker float64 `json:"seconds_per_worker"`
	PerServer float64 `json:"seconds_per_server"`
}

// StepSeconds returns the time of one step of the whole job.
func (s Servers) StepSeconds(cfg Config, async bool) float64 {
	w, p := float64(max(cfg.Workers, 1)), float64(max(cfg.Servers, 1))
	seconds := s.PerSample*float64(cfg.LocalBatch) + s.Fixed + s.PerShare*w/p + s.PerWorker*w + s.PerServer*p
	if async {
		return seconds / w
	}
	return seconds
}

// Measured is the mean step time observed on one configuration.
type Measured struct {
	Config
	StepSeconds float64 `json:"step_seconds"`
	// Weight is the number of steps (or other units) in the mean.
	Weight float64 `json:"weight"`
	// Error is the possible relative error of a time that comes from another job; 0 for the job's own.
	Error float64 `json:"error,omitempty"`
}

// Speed predicts the time of one step on any configuration: the mean for a measured configuration, the fitted form for
// all others. libs/curve pulls each fit towards a stated prior, so that one measured configuration suffices for a
// prediction; RelativeError gives its uncertainty.
type Speed struct {
	Kind      SpeedKind `json:"kind,omitempty"`
	AllReduce AllReduce `json:"all_reduce,omitzero"`
	Servers   Servers   `json:"servers,omitzero"`
	// TypicalBatch replaces a LocalBatch of zero.
	TypicalBatch int `json:"typical_batch,omitempty"`
	// FitError is the weighted root mean square relative residual on the measured configurations.
	FitError float64    `json:"fit_error"`
	Measured []Measured `json:"measured,omitempty"`
}

// Known reports whether anything was measured. If not, StepSeconds and StepsPerSecond return zero.
func (s Speed) Known() bool { return len(s.Measured) > 0 }

// normal fills in the typical batch, so that configurations can be compared.
func (s Speed) normal(cfg Config) Config {
	if cfg.LocalBatch <= 0 {
		cfg.LocalBatch = s.TypicalBatch
	}
	cfg.Workers, cfg.Nodes = max(cfg.Workers, 1), max(cfg.Nodes, 1)
	return cfg
}

// Observed returns the mean step time of a measured configuration.
func (s Speed) Observed(cfg Config) (Measured, bool) {
	cfg = s.normal(cfg)
	for _, m := range s.Measured {
		if m.Config == cfg {
			return m, true
		}
	}
	return Measured{}, false
}

// StepSeconds predicts one step of the whole job: measured if possible, else fitted.
func (s Speed) StepSeconds(cfg Config) float64 {
	if m, ok := s.Observed(cfg); ok {
		return m.StepSeconds
	}
	return s.FittedSeconds(cfg)
}

// FittedSeconds returns the value of the fitted form, even for a measured configuration.
func (s Speed) FittedSeconds(cfg Config) float64 {
	if !s.Known() {
		return 0
	}
	cfg = s.normal(cfg)
	switch s.Kind {
	case SpeedServersSync, SpeedServersAsync:
		return s.Servers.StepSeconds(cfg, s.Kind == SpeedServersAsync)
	case SpeedAllReduce:
	}
	return s.AllReduce.StepSeconds(cfg)
}

// StepsPerSecond is the inverse of StepSeconds; zero if nothing is known.
func (s Speed) StepsPerSecond(cfg Config) float64 {
	if seconds := s.StepSeconds(cfg); seconds > 0 {
		return 1 / seconds
	}
	return 0
}

// The possible relative errors of a prediction. They are chosen so that on the published step times of six applications
// about two thirds of the errors stay below RelativeError.
const (
	measuredError = 0.03 // a mean of the same configuration
	// oneConfiguration, divided by the number of configurations, is the possible error of the prior.
	oneConfiguration = 0.35
	// perDoubling counts for each doubling of workers, servers or batch away from the nearest measurement.
	perDoubling     = 0.06
	unseenNetwork   = 0.10 // the first step beyond one worker, or beyond one node
	unknownRelative = 1.0  // nothing measured
)

// RelativeError returns the possible relative error of the predicted step time on cfg (about one standard deviation):
// the fit's own residual, growing with the distance to the nearest measured configuration.
func (s Speed) RelativeError(cfg Config) float64 {
	if m, ok := s.Observed(cfg); ok {
		return max(measuredError, m.Error)
	}
	cfg = s.normal(cfg)
	nearest := unknownRelative
	for _, m := range s.Measured {
		distance := doublings(cfg.Workers, m.Workers) + doublings(cfg.Servers, m.Servers)
		away := m.Error + perDoubling*(distance+doublings(cfg.LocalBatch, m.LocalBatch))
		if reach(cfg) > reach(m.Config) {
			away += unseenNetwork
		}
		nearest = math.Min(nearest, away)
	}
	few := oneConfiguration / float64(max(len(s.Measured), 1))
	return math.Min(measuredError+s.FitError+few+nearest, unknownRelative)
}

// doublings is the distance of two counts in powers of two.
func doublings(a, b int) float64 {
	return math.Abs(math.Log2(float64(max(a, 1)) / float64(max(b, 1))))
}

// reach ranks what a configuration's gradients cross: nothing, one node, several nodes.
func reach(cfg Config) int {
	switch {
	case cfg.Workers <= 1 && cfg.Servers == 0:
		return 0
	case cfg.Nodes <= 1:
		return 1
	}
	return 2
}
