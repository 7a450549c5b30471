package train

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Setting is under which system parameters the job of a trial shall run, and how far it may train for now. It is a wish that stands, not a command: whoever
// hears of it late, or twice, does the same.
type Setting struct {
	Job JobID `json:"job"`
	// Experiment is that of the trial: what was applied is told under its name.
	Experiment JobID `json:"experiment"`
	// Generation is another one whenever the values are.
	Generation uint64 `json:"generation"`
	// Values are the system parameters by name; those that are not named are left alone.
	Values map[string]float64 `json:"values,omitempty"`
	// BatchSize is how many samples a step of each process has: passes of SettingMicroBatch add up to it. Where the number of devices is tuned it is that on
	// BatchDevices of them: on others each has as many as make the same step, so that the same is learnt.
	BatchSize    int `json:"batch_size,omitempty"`
	BatchDevices int `json:"batch_devices,omitempty"`
	// Command and Env are what an attempt is started with instead of the job's own, where these name a value; empty where they do not.
	Command []string          `json:"command,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	// PauseAfter is after how many epochs the job leaves and holds no devices until it is raised; 0: it never does.
	PauseAfter int `json:"pause_after_epochs,omitempty"`
}

// Names of system parameters.
const (
	// SettingCores is how many processors each process of the job may use.
	SettingCores = "cores"
	// SettingMemoryMiB is how much main memory each process of the job may use.
	SettingMemoryMiB = "memory_mib"
	// SettingDevices is on how many devices the job runs.
	SettingDevices = "devices"
	// SettingMicroBatch is how many samples each process passes through at once.
	SettingMicroBatch = "micro_batch"
	// SettingPowerLimit is what each GPU of the job may draw, in watts.
	SettingPowerLimit = "power_limit_w"
)

// Same says whether two settings ask for the same.
func (s Setting) Same(other Setting) bool {
	return s.Generation == other.Generation && s.PauseAfter == other.PauseAfter && maps.Equal(s.Values, other.Values)
}

// Pauses says whether a job that has done so many epochs is to wait.
func (s Setting) Pauses(epochsDone int) bool { return s.PauseAfter > 0 && epochsDone >= s.PauseAfter }

// ParameterVariable is the environment variable in which training code finds a parameter.
func ParameterVariable(name string) string { return "SWITCHYARD_PARAM_" + strings.ToUpper(name) }

// Only is the setting with those of its values that have one of some names.
func (s Setting) Only(names ...string) Setting {
	s.Values = maps.Clone(s.Values)
	maps.DeleteFunc(s.Values, func(name string, _ float64) bool { return !slices.Contains(names, name) })
	return s
}

// Without is the setting without the values that have one of some names.
func (s Setting) Without(names ...string) Setting {
	s.Values = maps.Clone(s.Values)
	maps.DeleteFunc(s.Values, func(name string, _ float64) bool { return slices.Contains(names, name) })
	return s
}

// BatchOn is how many samples a step has on each of so many devices, where so many were submitted.
func (s Setting) BatchOn(devices, submitted int) int {
	if s.BatchDevices == 0 || devices < 1 {
		return submitted
	}
	return (submitted*s.BatchDevices + devices - 1) / devices
}

// MicroBatch is with which micro-batch the job shall run on so many devices, and how many make a step; false where the setting says nothing of it, or more than
// a step has.
func (s Setting) MicroBatch(devices int) (TunedTenant, bool) {
	micro, batch := int(s.Values[SettingMicroBatch]), s.BatchOn(devices, s.BatchSize)
	if micro < 1 || micro > batch {
		return TunedTenant{}, false
	}
	return TunedTenant{Job: s.Job, MicroBatch: micro, Accumulation: (batch + micro - 1) / micro}, true
}

// Wants says whether the setting has a value of a parameter: then it is nobody else's to choose.
func (s Setting) Wants(name string) bool { return s.Values[name] > 0 }

// Applied is a setting as it was applied to an attempt.
type Applied struct {
	Job     JobID `json:"job"`
	Attempt int   `json:"attempt"`
	// Generation is that of the setting.
	Generation uint64 `json:"generation"`
	// Values are those of the setting that the attempt has.
	Values map[string]float64 `json:"values,omitempty"`
	// Refused are those that it cannot have, each with the reason in words.
	Refused map[string]string `json:"refused,omitempty"`
	// Restarts are the parameters that change with a restart alone: an attempt with another value of one leaves at its epoch's end, and the next one is started
	// with what is wanted.
	Restarts []string `json:"restarts,omitempty"`
	// At is when: an epoch in which it falls has no setting of its own.
	At time.Time `json:"at"`
}

// Take notes a value that the attempt has.
func (a *Applied) Take(name string, value float64) {
	if a.Values == nil {
		a.Values = map[string]float64{}
	}
	a.Values[name] = value
}

// Refuse notes a parameter that the attempt cannot have.
func (a *Applied) Refuse(name, why string) {
	if a.Refused == nil {
		a.Refused = map[string]string{}
	}
	a.Refused[name] = why
}

// TakeByRestart notes a parameter that changes with a restart alone, and that the attempt has the value that is wanted where it was started with it.
func (a *Applied) TakeByRestart(name string, wanted, started float64) {
	a.Restarts = append(a.Restarts, name)
	slices.Sort(a.Restarts)
	if wanted == started {
		a.Take(name, wanted)
	}
}

// Pending are the parameters of a setting that the attempt neither has nor is refused: they are under way, or wait for its next start.
func (a Applied) Pending(wanted map[string]float64) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		_, has := a.Values[name]
		if _, refused := a.Refused[name]; !has && !refused {
			names = append(names, name)
		}
	}
	return names
}
