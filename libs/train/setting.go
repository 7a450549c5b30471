package train

import (
	"maps"
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
	// PauseAfter is after how many epochs the job leaves and holds no devices until it is raised; 0: it never does.
	PauseAfter int `json:"pause_after_epochs,omitempty"`
}

// Names of system parameters that can be set while a job runs.
const (
	// SettingCores is how many processors each process of the job may use, at most those that its devices come with.
	SettingCores = "cores"
)

// Same says whether two settings ask for the same.
func (s Setting) Same(other Setting) bool {
	return s.Generation == other.Generation && s.PauseAfter == other.PauseAfter && maps.Equal(s.Values, other.Values)
}

// Pauses says whether a job that has done so many epochs is to wait.
func (s Setting) Pauses(epochsDone int) bool { return s.PauseAfter > 0 && epochsDone >= s.PauseAfter }

// Cores is the value of SettingCores, 0 where there is none.
func (s Setting) Cores() int { return int(s.Values[SettingCores]) }

// Applied is a setting as it was applied to an attempt.
type Applied struct {
	Job     JobID `json:"job"`
	Attempt int   `json:"attempt"`
	// Generation is that of the setting.
	Generation uint64 `json:"generation"`
	// Values are those of the setting that could be applied.
	Values map[string]float64 `json:"values,omitempty"`
	// Refused are those that could not, each with the reason in words.
	Refused map[string]string `json:"refused,omitempty"`
	// At is when: an epoch in which it falls has no setting of its own.
	At time.Time `json:"at"`
}
