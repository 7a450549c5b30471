package predictions

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"io/fs"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/lab/traces"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// measurements are trainings, and step times of applications by kind of device.
type measurements struct {
	trainings []training
	paces     []paces
}

// training is one measured run. Seconds are measured or, with a pace, follow from the steps of each epoch and the
// measured step time.
type training struct {
	name string
	// family is the application; trainings of one differ in their batch. Empty if there is none like it.
	family string
	// heldOut says that no choice in the code was made by looking at this run.
	heldOut bool
	epochs  int
	// losses are by epoch; nil if the run reports no loss.
	losses []float64
	// seconds are by epoch on config, moved by epoch on movedTo, where the job never ran; nil if not measured.
	seconds, moved  []float64
	config, movedTo train.Config
	steps           []int
	stepSeconds     float64
	declaredSteps   float64 // in an epoch, by the size of the training set
	// prior is that of the devices that it ran on.
	prior curve.DevicePrior
}

// paces are measured step times of one application on one kind of device.
type paces struct {
	name    string
	heldOut bool
	samples []train.Measured
	// prior is that of the devices.
	prior curve.DevicePrior
}

func load(root fs.FS) (*measurements, error) {
	m := &measurements{}
	if err := m.loadPollux(root); err != nil {
		return nil, fmt.Errorf("load trainings: %w", err)
	}
	if err := m.loadPipeTune(root); err != nil {
		return nil, fmt.Errorf("load epoch times: %w", err)
	}
	for _, dir := range []string{"pollux", "sia"} {
		files, err := fs.Glob(root, path.Join(dir, "traces", "*", "placements*.csv"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			// The second folder repeats the devices of the first.
			repeated := dir == "sia" && (strings.HasSuffix(file, "placements.csv") || strings.HasSuffix(file, "-aws.csv"))
			if repeated || strings.Contains(file, "gpt_pmp") { // a pipeline has no data-parallel steps
				continue
			}
			p, err := loadPaces(root, file)
			if err != nil {
				return nil, fmt.Errorf("load step times: %w", err)
			}
			p.heldOut = dir == "sia"
			m.paces = append(m.paces, p)
		}
	}
	return m, nil
}

// rows reads a CSV file by its header.
func rows(root fs.FS, file string) ([]map[string]string, error) {
	data, err := fs.ReadFile(root, file)
	if err != nil {
		return nil, err
	}
	records, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", file, err)
	}
	var all []map[string]string
	for _, r := range records[min(1, len(records)):] {
		row := map[string]string{}
		for i, name := range records[0] {
			row[name] = r[i]
		}
		all = append(all, row)
	}
	return all, nil
}

// numbers parses columns; a missing one is no number.
func numbers(row map[string]string, columns ...string) ([]float64, error) {
	values := make([]float64, len(columns))
	for i, c := range columns {
		x, err := strconv.ParseFloat(row[c], 64)
		if err != nil {
			return nil, fmt.Errorf("parse column %s: %w", c, err)
		}
		values[i] = x
	}
	return values, nil
}

func loadPaces(root fs.FS, file string) (paces, error) {
	p := paces{prior: curve.PriorOn(train.Device{Kind: train.KindGPU}), name: strings.TrimSuffix(path.Base(path.Dir(file))+strings.TrimPrefix(path.Base(file), "placements"), ".csv")}
	table, err := rows(root, file)
	if err != nil {
		return p, err
	}
	for _, row := range table {
		x, err := numbers(row, "local_bsz", "step_time")
		if err != nil {
			return p, fmt.Errorf("read %s: %w", file, err)
		}
		workers := 0
		for _, digit := range row["placement"] {
			workers += int(digit - '0')
		}
		c := train.Config{Workers: workers, Nodes: len(row["placement"]), LocalBatch: int(x[0])}
		p.samples = append(p.samples, train.Measured{Config: c, StepSeconds: x[1], Weight: 1})
	}
	return p, nil
}

// accuracies are the applications whose metric is a share of right answers, from 0 to 1.
func accuracies() []string { return []string{"cifar10", "imagenet", "ncf"} }

// loadPollux reads the trainings at fixed batch sizes. Every second batch size of an application, in ascending order,
// is held out.
func (m *measurements) loadPollux(root fs.FS) error {
	apps, err := traces.Load(root, "pollux/traces", "pollux/derived")
	if err != nil {
		return err
	}
	for _, p := range traces.Profiles() {
		files, err := fs.Glob(root, path.Join("pollux/traces", p.Name, "validation-*.csv"))
		if err != nil {
			return err
		}
		batches := map[int]string{}
		var order []int
		for _, file := range files {
			batch, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(path.Base(file), "validation-"), ".csv"))
			if err != nil {
				return fmt.Errorf("read %s: the name has no batch size", file)
			}
			batches[batch], order = file, append(order, batch)
		}
		slices.Sort(order)
		samples := 0.0
		for i, batch := range order {
			t := training{name: fmt.Sprintf("%s-%d", p.Name, batch), family: p.Name, heldOut: i%2 == 1, prior: curve.PriorOn(train.Device{Kind: train.KindGPU})}
			if err := t.read(root, batches[batch], slices.Contains(accuracies(), p.Name)); err != nil {
				return err
			}
			if i == 0 {
				samples = float64(t.steps[0] * batch)
			}
			t.declaredSteps = math.Max(math.Round(samples/float64(batch)), 1)
			t.run(apps[p.Name], batch)
			m.trainings = append(m.trainings, t)
		}
	}
	return nil
}

func (t *training) read(root fs.FS, file string, accuracy bool) error {
	table, err := rows(root, file)
	if err != nil {
		return err
	}
	before := 0.0
	for _, row := range table {
		x, err := numbers(row, "metric", "iteration")
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		loss := x[0]
		if accuracy {
			loss = 1 - loss
		}
		t.losses = append(t.losses, loss)
		t.steps = append(t.steps, int(x[1]-before))
		before = x[1]
	}
	t.epochs = len(table)
	if strings.Contains(t.name, "bert") {
		t.losses = nil // a score that rises, over two epochs
	}
	return nil
}

// run gives the training the fewest devices that its batch fits on, and twice as many for the move.
func (t *training) run(app *traces.Application, batch int) {
	devices := 1
	for batch > devices*app.Limits.MaxLocal {
		devices *= 2
	}
	t.seconds, t.config, t.stepSeconds = t.on(app, devices, batch)
	if more := 2 * devices; batch/more >= app.Limits.MinLocal && more <= 64 {
		t.moved, t.movedTo, _ = t.on(app, more, batch)
	}
}

// on returns the times of the epochs on a number of devices, four to a node.
func (t *training) on(app *traces.Application, devices, batch int) ([]float64, train.Config, float64) {
	shape := []int{devices}
	if devices > 4 {
		shape = slices.Repeat([]int{4}, devices/4)
	}
	c := train.Config{Workers: devices, Nodes: len(shape), LocalBatch: batch / devices}
	step := app.Steps[""].At(shape, c.LocalBatch).Step
	seconds := make([]float64, len(t.steps))
	for i, n := range t.steps {
		seconds[i] = float64(n) * step
	}
	return seconds, c, step
}

// loadPipeTune reads the wall-clock times of epochs of runs on CPUs, and the losses of one run.
func (m *measurements) loadPipeTune(root fs.FS) error {
	data, err := fs.ReadFile(root, "pipetune/epoch_timestamps.csv")
	if err != nil {
		return err
	}
	starts := map[string]map[string]float64{}
	for line := range strings.Lines(string(data)) {
		f := strings.Split(strings.TrimSpace(line), ",")
		if len(f) != 8 {
			continue
		}
		at, err := strconv.ParseFloat(f[7], 64)
		if err != nil {
			continue // the header
		}
		run := strings.Join(f[:6], "-")
		if starts[run] == nil {
			starts[run] = map[string]float64{}
		}
		starts[run][f[6]] = at
	}
	names := make([]string, 0, len(starts))
	for name := range starts {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		t := training{name: name, heldOut: i%2 == 1, config: train.Config{Workers: 1, Nodes: 1}}
		for e := 1; ; e++ {
			from, begun := starts[name][strconv.Itoa(e)]
			to, more := starts[name][strconv.Itoa(e+1)]
			if !begun {
				break
			}
			if !more {
				to = starts[name]["end"]
			}
			t.seconds = append(t.seconds, to-from)
		}
		if t.epochs = len(t.seconds); t.epochs > 2 && slices.Min(t.seconds) > 0 {
			m.trainings = append(m.trainings, t)
		}
	}
	return m.loadLog(root)
}

// loadLog reads the training losses of one run on MNIST: means by epoch.
func (m *measurements) loadLog(root fs.FS) error {
	data, err := fs.ReadFile(root, "pipetune/history/bigdl_mnist_10epochs.log")
	if err != nil {
		return err
	}
	said := regexp.MustCompile(`\[Epoch (\d+) .*Loss is ([0-9.eE+-]*[0-9])`)
	sums, counts := map[int]float64{}, map[int]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		f := said.FindStringSubmatch(lines.Text())
		if f == nil {
			continue
		}
		epoch, _ := strconv.Atoi(f[1]) // digits alone
		loss, err := strconv.ParseFloat(f[2], 64)
		if err != nil {
			return fmt.Errorf("read log: loss %q: %w", f[2], err)
		}
		sums[epoch], counts[epoch] = sums[epoch]+loss, counts[epoch]+1
	}
	t := training{name: "mnist", heldOut: true, epochs: len(sums)}
	for e := 1; e <= len(sums); e++ {
		t.losses = append(t.losses, sums[e]/cmp.Or(counts[e], 1))
	}
	m.trainings = append(m.trainings, t)
	return nil
}
