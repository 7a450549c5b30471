package traces

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Load reads the applications below a folder of traces, one folder each, that have a profile. derived is the folder
// of the precomputed interpolations, or "". Step times without a model in their name are of model "".
func Load(root fs.FS, traces, derived string) (map[string]*Application, error) {
	apps := map[string]*Application{}
	for _, p := range Profiles() {
		dir := path.Join(traces, p.Name)
		if _, err := fs.Stat(root, dir); err != nil {
			continue
		}
		app, err := loadApplication(root, dir, derived, p)
		if err != nil {
			return nil, fmt.Errorf("load application %s: %w", p.Name, err)
		}
		apps[p.Name] = app
	}
	if len(apps) == 0 {
		return nil, fmt.Errorf("load traces from %s: no folder of a known application", traces)
	}
	return apps, nil
}

// LoadOne reads one application as Load does.
func LoadOne(root fs.FS, traces, derived, name string) (*Application, error) {
	for _, p := range Profiles() {
		if p.Name != name {
			continue
		}
		app, err := loadApplication(root, path.Join(traces, name), derived, p)
		if err != nil {
			return nil, fmt.Errorf("load application %s: %w", name, err)
		}
		return app, nil
	}
	return nil, fmt.Errorf("load application %q: it has no profile", name)
}

func loadApplication(root fs.FS, dir, derived string, p Profile) (*Application, error) {
	app := &Application{Profile: p, Steps: map[string]*StepTimes{}}
	files, err := fs.ReadDir(root, dir)
	if err != nil {
		return nil, err
	}
	trainings := map[int][]byte{}
	for _, f := range files {
		name, isTable := strings.CutSuffix(f.Name(), ".csv")
		if !isTable {
			continue
		}
		if batch, ok := strings.CutPrefix(name, "validation-"); ok {
			size, err := strconv.Atoi(batch)
			if err != nil {
				return nil, fmt.Errorf("read %s: the name has no batch size", f.Name())
			}
			if trainings[size], err = fs.ReadFile(root, path.Join(dir, f.Name())); err != nil {
				return nil, err
			}
		}
		if model, ok := strings.CutPrefix(name, "placements"); ok {
			if err := app.loadSteps(root, dir, model); err != nil {
				return nil, err
			}
		}
	}
	if app.Training, err = ParseTraining(p.Name, trainings, p.Epochs); err != nil {
		return nil, err
	}
	if steps, ok := app.Steps[""]; ok && derived != "" {
		err = loadInterpolation(root, derived, p.Name, steps)
	}
	return app, err
}

// loadSteps reads placements and scalability of one model of device. The names of the files end in the suffix.
func (a *Application) loadSteps(root fs.FS, dir, suffix string) error {
	placements, err := fs.ReadFile(root, path.Join(dir, "placements"+suffix+".csv"))
	if err != nil {
		return err
	}
	scalability, err := fs.ReadFile(root, path.Join(dir, "scalability"+suffix+".csv"))
	if err != nil {
		return err
	}
	steps, err := ParseStepTimes(a.Name+suffix, placements, scalability)
	if err != nil {
		return err
	}
	a.Steps[strings.TrimPrefix(suffix, "-")] = steps
	return nil
}

func loadInterpolation(root fs.FS, derived, app string, steps *StepTimes) error {
	var files [3][]byte
	for i, name := range []string{app + "-points.csv", app + "-simplices.csv", "interpolated-lookup.csv"} {
		data, err := fs.ReadFile(root, path.Join(derived, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the nearest measurements answer for the rest
		}
		if err != nil {
			return err
		}
		files[i] = data
	}
	return steps.Interpolate(app, files[0], files[1], files[2])
}
