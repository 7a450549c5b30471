package contract

import "fmt"

// GroundTruth holds the knowledge about the workloads of trials: their signatures, what their settings cost, and the
// model that distinguishes their kinds. It holds signatures rather than names of clusters, so a new model loses
// nothing.
type GroundTruth struct {
	Seed    uint64     `json:"seed"`
	Entries []Workload `json:"entries,omitempty"`
	Model   KindModel  `json:"model"`
	// Fitted is the number of signatures that the model was made from.
	Fitted int `json:"fitted"`
	// Given are imported clusters. They come first: Model distinguishes the rest.
	Given KindModel `json:"given,omitzero"`
	// Heard are the newest epochs learnt, by training. An epoch that is reported again after a crash is learnt once.
	Heard []LearntUpTo `json:"heard,omitempty"`
}

// Public returns what everybody may see: what settings cost. The names of workloads hold the command lines of jobs.
func (g GroundTruth) Public() GroundTruth {
	entries := make([]Workload, len(g.Entries))
	for i, e := range g.Entries {
		e.Workload, e.Name = fmt.Sprintf("workload %d", i+1), ""
		entries[i] = e
	}
	g.Entries, g.Heard = entries, nil
	return g
}

// Workload holds the knowledge about one workload.
type Workload struct {
	WorkloadCosts
	Signature Signature `json:"signature,omitempty"`
}

// WorkloadCosts is what the trials of one workload showed.
type WorkloadCosts struct {
	Workload string `json:"workload"`
	// Name tells people what it is: the experiment, its program, and the parameters that change what an epoch costs.
	Name      string  `json:"name,omitempty"`
	Kind      string  `json:"kind,omitempty"`
	BatchSize float64 `json:"batch_size,omitempty"`
	// Unit is the unit of the costs.
	Unit string `json:"unit,omitempty"`
	// Default is the setting the trials would have kept without tuning.
	Default  SettingValues  `json:"default"`
	Measured []MeasuredCost `json:"measured,omitempty"`
	// Failed are the settings at which a trial could not run.
	Failed []SettingValues `json:"failed,omitempty"`
}

// MeasuredCost is the mean cost of the epochs at one setting.
type MeasuredCost struct {
	Setting SettingValues `json:"setting"`
	Cost    float64       `json:"cost"`
	Epochs  int           `json:"epochs"`
}

// LearntUpTo is the attempt and the epoch up to which a training was learnt.
type LearntUpTo struct {
	Training string `json:"training"`
	Attempt  int    `json:"attempt"`
	Epoch    int    `json:"epoch"`
}

// Signature is what was measured of a workload in an epoch: rates by name, for example events per second, shares of
// cores or bytes. What a node cannot measure is absent.
type Signature map[string]float64

// KindModel distinguishes kinds of workloads.
type KindModel struct {
	Features []Feature     `json:"features"`
	Clusters []KindCluster `json:"clusters"`
}

// Feature is how one rate is scaled. Rates differ by factors, so their logarithm counts.
type Feature struct {
	Name string `json:"name"`
	// Median and Scale are of log(1+rate). Scale is 1.4826 times the median absolute deviation, which is the standard
	// deviation where deviations are normal.
	Median float64 `json:"median"`
	Scale  float64 `json:"scale"`
}

// KindCluster is a kind of workload.
type KindCluster struct {
	// Centre is scaled, by the names of features. A feature that no member has is absent.
	Centre map[string]float64 `json:"centre"`
	// Threshold is the largest distance from the centre of a signature of this kind.
	Threshold float64 `json:"threshold"`
	Members   int     `json:"members"`
}
