package recurring

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/lab/rows"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/planner/recur"
)

// Profile holds the measurements of a job's devices at each power limit, as a monitor of windows logged them.
type Profile struct {
	// File is the name of the log.
	File    string
	Devices int
	Windows []contract.PowerWindow
}

// LoadProfiles reads every log of windows in a folder, by name. A log has the columns window_name, which ends in an
// underscore and the limit in watts, elapsed_time in seconds, and gpu<i>_energy in joules for each device.
func LoadProfiles(files fs.FS) ([]Profile, error) {
	names, err := fs.Glob(files, "*.csv")
	if err != nil {
		return nil, fmt.Errorf("list logs of windows: %w", err)
	}
	all := make([]Profile, 0, len(names))
	for _, name := range names {
		p, err := loadProfile(files, name)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func loadProfile(files fs.FS, name string) (Profile, error) {
	p := Profile{File: path.Base(name)}
	lines, err := rows.Read(files, name, "window_name", "elapsed_time", "gpu0_energy")
	if err != nil {
		return p, err
	}
	for _, row := range lines {
		ranks, err := readWindows(row)
		if err != nil {
			return p, err
		}
		p.Devices = len(ranks)
		p.Windows = append(p.Windows, merge(ranks))
	}
	if p.Devices == 0 {
		return p, fmt.Errorf("parse %s: no window in it", name)
	}
	return p, nil
}

// readWindows reads a row of a log: one window for each device.
func readWindows(r rows.Row) ([]contract.PowerWindow, error) {
	text := r.Text("window_name")
	limit, err := strconv.ParseFloat(text[strings.LastIndex(text, "_")+1:], 64)
	if err != nil || !(limit > 0) {
		return nil, fmt.Errorf("parse %s: window_name %q does not end in _WATTS, the power limit", r.Where(), text)
	}
	seconds, err := r.Number("elapsed_time")
	if err != nil {
		return nil, err
	}
	var all []contract.PowerWindow
	for _, column := range r.Columns() {
		if !strings.HasPrefix(column, "gpu") || !strings.HasSuffix(column, "_energy") {
			continue
		}
		joules, err := r.Number(column)
		if err != nil {
			return nil, err
		}
		all = append(all, contract.PowerWindow{LimitWatts: limit, EnergyJoules: joules, Seconds: seconds})
	}
	return all, nil
}

// Choice is the limit that costs a job least, and what it saves.
type Choice struct {
	File       string  `json:"file"`
	Devices    int     `json:"devices"`
	PowerLimit float64 `json:"power_limit"` // watts, of each device
	// EnergyRatio and TimeRatio compare with the highest limit.
	EnergyRatio float64 `json:"energy_ratio"`
	TimeRatio   float64 `json:"time_ratio"`
}

// Choose takes the limit of least cost; a second is worth the highest limit of all devices together.
func (p Profile) Choose(eta float64) Choice {
	var top contract.PowerWindow
	for _, w := range p.Windows {
		if w.LimitWatts > top.LimitWatts {
			top = w
		}
	}
	w, _ := recur.ChooseLimit(p.Windows, eta, float64(p.Devices)*top.LimitWatts)
	return Choice{p.File, p.Devices, w.LimitWatts, w.EnergyJoules / top.EnergyJoules, w.Seconds / top.Seconds}
}

// merge combines the windows that the ranks of a job measured at the same limit: their energies add up, and they
// wait for the slowest.
func merge(ranks []contract.PowerWindow) contract.PowerWindow {
	var w contract.PowerWindow
	for _, r := range ranks {
		w.LimitWatts = r.LimitWatts
		w.EnergyJoules += r.EnergyJoules
		w.Seconds = max(w.Seconds, r.Seconds)
	}
	return w
}
