package train

import "github.com/switchyard-dl/switchyard/libs/unit"

// Account is the energy of one job in the ledger.
type Account struct {
	Job JobID `json:"job"`
	// Energy is what was attributed to the job; Components splits it by component (cpu, gpu, dram).
	Energy     unit.Energy            `json:"energy_uj"`
	Components map[string]unit.Energy `json:"components_uj,omitempty"`
	// Methods are how it was obtained: nvml_counter, nvml_power, rapl, modelled.
	Methods []string `json:"methods"`
	// Seconds is the measured time in which the job used the node; Epochs the epochs done so far.
	Seconds float64 `json:"seconds"`
	Epochs  int     `json:"epochs"`
	// MeanPower is Energy over Seconds; PeakPower the highest of an interval.
	MeanPower unit.Power `json:"mean_uw"`
	PeakPower unit.Power `json:"peak_uw"`
	// Final is set when the job has ended and nothing is added any more.
	Final bool `json:"final,omitempty"`
}
