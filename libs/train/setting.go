package train

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Setting is the desired system parameters of a trial's job, and how far it may train for now. It is desired state, not
// a command: a late or repeated delivery has the same effect.
type Setting struct {
	Job JobID `json:"job"`
	// Experiment is the experiment of the trial; facts about the setting carry its id.
	Experiment JobID `json:"experiment"`
	// Generation changes whenever the values change.
	Generation uint64 `json:"generation"`
	// Values are the system parameters by name; parameters not named are left alone.
	Values map[string]float64 `json:"values,omitempty"`
	// BatchSize is the number of samples per step and process: passes of SettingMicroBatch add up to it. If the number
	// of devices is tuned, it is the size on BatchDevices of them; on other numbers each device has as many samples as
	// make the same step, so that the training is the same.
	BatchSize    int `json:"batch_size,omitempty"`
	BatchDevices int `json:"batch_devices,omitempty"`
	// AtStart names the values that the program learns in its command line, and that nothing else applies: another value
	// needs a restart, wherever the job runs. ${name} stands for a value there, see Words.
	AtStart []string `json:"at_start,omitempty"`
	// PauseAfter is the number of epochs after which the job stops and holds no devices until the number is raised; 0
	// means never.
	PauseAfter int `json:"pause_after_epochs,omitempty"`
}

// Names of system parameters.
const (
	// SettingCores is the number of processors of each process.
	SettingCores = "cores"
	// SettingMemoryMiB is the main memory of each process.
	SettingMemoryMiB = "memory_mib"
	// SettingDevices is the number of devices of the job.
	SettingDevices = "devices"
	// SettingMicroBatch is the number of samples that each process handles in one pass.
	SettingMicroBatch = "micro_batch"
	// SettingPowerLimit is the power limit of each GPU of the job, in watts.
	SettingPowerLimit = "power_limit_w"
)

// SettingNames lists them.
func SettingNames() []string {
	return []string{SettingCores, SettingMemoryMiB, SettingDevices, SettingMicroBatch, SettingPowerLimit}
}

// Words returns what ${name} stands for in the command and the environment of an attempt: the numbers of system
// parameters, and nothing else.
func (s Setting) Words() map[string]string {
	words := map[string]string{}
	for _, name := range SettingNames() {
		if x, given := s.Values[name]; given {
			words[name] = strconv.FormatFloat(x, 'f', -1, 64)
		}
	}
	return words
}

// Same reports whether two settings ask for the same.
func (s Setting) Same(other Setting) bool {
	return s.Generation == other.Generation && s.PauseAfter == other.PauseAfter && maps.Equal(s.Values, other.Values)
}

// Pauses reports whether a job with this many epochs done has to wait.
func (s Setting) Pauses(epochsDone int) bool { return s.PauseAfter > 0 && epochsDone >= s.PauseAfter }

// ParameterVariable returns the environment variable in which training code finds a parameter.
func ParameterVariable(name string) string { return "SWITCHYARD_PARAM_" + strings.ToUpper(name) }

// Only returns the setting with only the named values.
func (s Setting) Only(names ...string) Setting {
	s.Values = maps.Clone(s.Values)
	maps.DeleteFunc(s.Values, func(name string, _ float64) bool { return !slices.Contains(names, name) })
	return s
}

// Without returns the setting without the named values.
func (s Setting) Without(names ...string) Setting {
	s.Values = maps.Clone(s.Values)
	maps.DeleteFunc(s.Values, func(name string, _ float64) bool { return slices.Contains(names, name) })
	return s
}

// Own returns the value of a parameter for the job's own processes; 0 if the setting has none, or only the program
// applies it.
func (s Setting) Own(name string) float64 {
	if slices.Contains(s.AtStart, name) {
		return 0
	}
	return s.Values[name]
}

// BatchOn returns the number of samples per step on each of a number of devices; submitted is the submitted number.
func (s Setting) BatchOn(devices, submitted int) int {
	if s.BatchDevices == 0 || devices < 1 {
		return submitted
	}
	return (submitted*s.BatchDevices + devices - 1) / devices
}

// MicroBatch returns the micro-batch on a number of devices and the number of passes per step; false if the setting has
// none, or one larger than a step.
func (s Setting) MicroBatch(devices int) (TunedJob, bool) {
	micro, batch := int(s.Values[SettingMicroBatch]), s.BatchOn(devices, s.BatchSize)
	if micro < 1 || micro > batch {
		return TunedJob{}, false
	}
	return TunedJob{Job: s.Job, MicroBatch: micro, Accumulation: (batch + micro - 1) / micro}, true
}

// Wants reports whether the setting has a value for a parameter: then nothing else may choose it.
func (s Setting) Wants(name string) bool { return s.Values[name] > 0 }

// Applied is a setting as applied to an attempt.
type Applied struct {
	Job     JobID `json:"job"`
	Attempt int   `json:"attempt"`
	// Generation is that of the setting.
	Generation uint64 `json:"generation"`
	// Values are the values of the setting that the attempt has.
	Values map[string]float64 `json:"values,omitempty"`
	// Refused are the parameters that it cannot have, each with the reason in words.
	Refused map[string]string `json:"refused,omitempty"`
	// Restarts are the parameters that change only with a restart: an attempt with another value stops at its epoch's
	// end, and the next one starts with the wanted value.
	Restarts []string `json:"restarts,omitempty"`
	// At is the time of the change: the epoch during which it happens has no single setting.
	At time.Time `json:"at"`
}

// Take records a value that the attempt has.
func (a *Applied) Take(name string, value float64) {
	if a.Values == nil {
		a.Values = map[string]float64{}
	}
	a.Values[name] = value
}

// Refuse records a parameter that the attempt cannot have.
func (a *Applied) Refuse(name, why string) {
	if a.Refused == nil {
		a.Refused = map[string]string{}
	}
	a.Refused[name] = why
}

// TakeByRestart records a parameter that changes only with a restart; the attempt has the wanted value if it was
// started with it.
func (a *Applied) TakeByRestart(name string, wanted, started float64) {
	a.Restarts = append(a.Restarts, name)
	slices.Sort(a.Restarts)
	if wanted == started {
		a.Take(name, wanted)
	}
}

// Pending returns the parameters of a setting that the attempt neither has nor was refused: they are being applied, or
// wait for its next start.
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
