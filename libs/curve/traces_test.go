package curve

import (
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// traces returns the folder of the Pollux artifact's measurements; the test is skipped if it is absent.
func traces(t *testing.T) string {
	t.Helper()
	root := os.Getenv("SWITCHYARD_DATA")
	if root == "" {
		t.Skip("SWITCHYARD_DATA does not name the folder of published traces")
	}
	dir := filepath.Join(root, "pollux", "traces")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no published traces: %v", err)
	}
	return dir
}

// table reads a CSV file and returns its rows as columns by name.
func table(t *testing.T, path string) []map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	records, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]string
	for _, record := range records[1:] {
		row := make(map[string]string)
		for i, name := range records[0] {
			row[name] = record[i]
		}
		rows = append(rows, row)
	}
	return rows
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// placements are the measured step times of one application, by placement string and configuration.
func placements(t *testing.T, app string) (all map[string][]StepSample) {
	t.Helper()
	all = make(map[string][]StepSample)
	for _, row := range table(t, filepath.Join(traces(t), app, "placements.csv")) {
		p, workers := row["placement"], 0
		for _, digit := range p {
			workers += int(digit - '0')
		}
		config := train.Config{Workers: workers, Nodes: len(p), LocalBatch: int(number(t, row["local_bsz"]))}
		all[p] = append(all[p], StepSample{Config: config, StepSeconds: number(t, row["step_time"]), Weight: 1})
	}
	return all
}

// pick takes, from each named placement, the sample at a fraction of its batches (0 the smallest, 1 the largest).
func pick(all map[string][]StepSample, fraction float64, names ...string) []StepSample {
	var picked []StepSample
	for _, name := range names {
		rows := all[name]
		picked = append(picked, rows[int(fraction*float64(len(rows)-1))])
	}
	return picked
}

func relativeErrors(fit train.Speed, all map[string][]StepSample) (errs []float64, covered float64) {
	for _, name := range sortedNames(all) {
		for _, s := range all[name] {
			if _, seen := fit.Observed(s.Config); seen {
				continue
			}
			e := math.Abs(fit.StepSeconds(s.Config)/s.StepSeconds - 1)
			errs = append(errs, e)
			if e <= fit.RelativeError(s.Config) {
				covered++
			}
		}
	}
	slices.Sort(errs)
	return errs, covered / float64(len(errs))
}

func sortedNames(all map[string][]StepSample) []string {
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestStepTimeOfPublishedApplications(t *testing.T) {
	coveredSum, fits := 0.0, 0.0
	for _, app := range []string{"bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"} {
		all := placements(t, app)
		learned := map[string][]StepSample{
			"1 configuration":   pick(all, 0.5, "1"),
			"4 configurations":  pick(all, 0.5, "1", "4", "11", "44"),
			"10 configurations": slices.Concat(pick(all, 0, "1", "4", "44"), pick(all, 0.5, "1", "2", "11", "22", "444"), pick(all, 1, "1", "44")),
		}
		for _, name := range []string{"1 configuration", "4 configurations", "10 configurations"} {
			fit, err := FitStepTime(learned[name], DevicePrior{})
			if err != nil {
				t.Fatal(err)
			}
			errs, covered := relativeErrors(fit, all)
			middle := median(errs)
			t.Logf("%-11s from %-17s: %4d held out, median error %4.1f %%, p90 %5.1f %%, within RelativeError %3.0f %%",
				app, name, len(errs), 100*middle, 100*errs[len(errs)*9/10], 100*covered)
			coveredSum, fits = coveredSum+covered, fits+1
			if name == "10 configurations" && middle > 0.25 {
				t.Errorf("%s: median relative error %.2f from ten configurations, want at most 0.25", app, middle)
			}
			if name == "4 configurations" && middle > 0.35 {
				t.Errorf("%s: median relative error %.2f from four configurations, want at most 0.35", app, middle)
			}
		}
	}
	if mean := coveredSum / fits; mean < 2.0/3 {
		t.Errorf("%.0f %% of errors within RelativeError, want two thirds", 100*mean)
	}
}

// TestLossOfPublishedTrainings fits the first half of each published training and predicts the second. The published
// metric is a validation loss or error rate, or else an accuracy, whose distance from 1 stands in for a loss.
func TestLossOfPublishedTrainings(t *testing.T) {
	accuracy := map[string]bool{"cifar10": true, "imagenet": true}
	for _, app := range []string{"cifar10", "deepspeech2", "imagenet", "yolov3"} {
		files, err := filepath.Glob(filepath.Join(traces(t), app, "validation-*.csv"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no training of %s: %v", app, err)
		}
		var errs []float64
		for _, file := range files {
			var points []Point
			for i, row := range table(t, file) {
				loss := number(t, row["metric"])
				if accuracy[app] {
					loss = 1 - loss
				}
				points = append(points, Point{Epoch: float64(i + 1), Loss: loss})
			}
			half := len(points) / 2
			fit, err := FitConvergence(points[:half])
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range points[half:] {
				errs = append(errs, math.Abs(fit.Loss(p.Epoch)-p.Loss)/points[0].Loss)
			}
		}
		middle := median(errs)
		t.Logf("%s: second half of %d trainings, median error %.1f %% of the first loss, p90 %.1f %%", app, len(files),
			100*middle, 100*errs[len(errs)*9/10])
		if middle > 0.25 {
			t.Errorf("%s: median error %.2f of the first loss, want at most 0.25", app, middle)
		}
	}
}
