// Package sharing plays streams of jobs on devices that at most two jobs share, with step times that were measured in
// pairs on real GPUs (Gavel, OSDI'20), and tunes the batches of such pairs on the same measurements. It compares the
// live planner's own rules with running alone, with placement by memory and with an oracle that reads the
// measurements. Time is virtual; a run depends on its inputs alone.
package sharing

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/lab/rows"
	"github.com/switchyard-dl/switchyard/libs/curve"
)

// Table holds the measurements of one type of GPU.
type Table struct {
	// Rates is the rate of one kind of job beside another: its steps per second there over its steps per second
	// alone. It is 0 if the two cannot share a device.
	Rates map[curve.KindPair]float64
	// Memory is the part of a device's memory that a kind declares, 0 to 1.
	Memory map[curve.Kind]float64
	// SamplesPerSecond is the speed of a kind alone.
	SamplesPerSecond map[curve.Kind]float64
}

// Job is one job of a stream.
type Job struct {
	Kind curve.Kind
	// ArrivalSeconds is counted from the stream's start.
	ArrivalSeconds float64
	// AloneSeconds is the time that the job takes on a device of its own.
	AloneSeconds float64
}

// LoadTable reads the measurements of a type of GPU: colocation-1gpu.csv, isolated.csv and declared_memory.csv.
func LoadTable(files fs.FS, gpu string) (Table, error) {
	t := Table{Rates: map[curve.KindPair]float64{}, Memory: map[curve.Kind]float64{}, SamplesPerSecond: map[curve.Kind]float64{}}
	const pairs = "colocation-1gpu.csv"
	known := map[string]bool{}
	for _, file := range []struct {
		name    string
		columns []string
		read    func(rows.Row) error
	}{
		{pairs, []string{"model_a", "batch_a", "model_b", "batch_b", "isolated_a", "isolated_b", "colocated_a", "colocated_b"}, t.readPair},
		{"isolated.csv", []string{"model", "batch", "scale_factor", "steps_per_s_sum"}, t.readAlone},
		{"declared_memory.csv", []string{"model", "batch", "memory_fraction"}, t.readMemory},
	} {
		all, err := rows.Read(files, file.name, append(file.columns, "gpu_type")...)
		if err != nil {
			return Table{}, err
		}
		for _, row := range all {
			of := row.Text("gpu_type")
			if file.name == pairs {
				known[of] = true
			}
			if !strings.EqualFold(of, gpu) {
				continue
			}
			if err := file.read(row); err != nil {
				return Table{}, err
			}
		}
	}
	if len(t.Rates) == 0 {
		return Table{}, fmt.Errorf("read measurements: %s has no pair on %q, only on %q", pairs, gpu, slices.Sorted(maps.Keys(known)))
	}
	return t, t.complete(gpu)
}

// complete reports an error if the speed or memory of a kind that was measured in pairs is missing.
func (t Table) complete(gpu string) error {
	for pair := range t.Rates {
		if kind := pair.Self; t.SamplesPerSecond[kind] == 0 {
			return fmt.Errorf("read measurements on %s: isolated.csv has no speed of %s with batch %d", gpu, kind.Family, kind.LocalBatch)
		} else if _, declared := t.Memory[kind]; !declared {
			return fmt.Errorf("read measurements on %s: declared_memory.csv has no memory of %s with batch %d", gpu, kind.Family, kind.LocalBatch)
		}
	}
	return nil
}

func (t Table) readPair(r rows.Row) error {
	a, err := readKind(r, "model_a", "batch_a")
	if err != nil {
		return err
	}
	b, err := readKind(r, "model_b", "batch_b")
	if err != nil {
		return err
	}
	if t.Rates[curve.KindPair{Self: a, Beside: b}], err = quotient(r, "colocated_a", "isolated_a"); err != nil {
		return err
	}
	t.Rates[curve.KindPair{Self: b, Beside: a}], err = quotient(r, "colocated_b", "isolated_b")
	return err
}

// quotient is the value of one column over that of another.
func quotient(r rows.Row, over, under string) (float64, error) {
	x, err := r.Number(over)
	if err != nil {
		return 0, err
	}
	y, err := r.Number(under)
	if err == nil && y == 0 {
		err = fmt.Errorf("parse %s, column %s: a speed of 0", r.Where(), under)
	}
	return x / y, err
}

func (t Table) readAlone(r rows.Row) error {
	if r.Text("scale_factor") != "1" {
		return nil
	}
	kind, err := readKind(r, "model", "batch")
	if err != nil {
		return err
	}
	steps, err := r.Number("steps_per_s_sum")
	t.SamplesPerSecond[kind] = steps * float64(max(kind.LocalBatch, 1))
	return err
}

func (t Table) readMemory(r rows.Row) error {
	kind, err := readKind(r, "model", "batch")
	if err != nil {
		return err
	}
	t.Memory[kind], err = r.Number("memory_fraction")
	return err
}

// readKind reads a model and its batch, which is 0 if the measurements do not name it.
func readKind(r rows.Row, model, batch string) (curve.Kind, error) {
	kind := curve.Kind{Family: r.Text(model)}
	if kind.Family == "" {
		return kind, fmt.Errorf("parse %s, column %s: no model", r.Where(), model)
	}
	if r.Text(batch) == "" {
		return kind, nil
	}
	size, err := r.Number(batch)
	kind.LocalBatch = int(size)
	return kind, err
}

// Kinds are the kinds of a table, by family and batch.
func (t Table) Kinds() []curve.Kind {
	return slices.SortedFunc(maps.Keys(t.SamplesPerSecond), func(a, b curve.Kind) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.LocalBatch, b.LocalBatch))
	})
}

// LoadStream reads a stream of jobs, all of measured kinds: arrival_s, model, batch, solo_s, in the order of arrival.
func (t Table) LoadStream(files fs.FS, name string) ([]Job, error) {
	all, err := rows.Read(files, name, "arrival_s", "model", "batch", "solo_s")
	if err != nil {
		return nil, err
	}
	jobs := make([]Job, len(all))
	for i, row := range all {
		j := &jobs[i]
		if j.Kind, err = readKind(row, "model", "batch"); err != nil {
			return nil, err
		}
		if _, measured := t.Rates[curve.KindPair{Self: j.Kind, Beside: j.Kind}]; !measured {
			return nil, fmt.Errorf("parse %s: %s with batch %d was not measured", row.Where(), j.Kind.Family, j.Kind.LocalBatch)
		}
		if j.ArrivalSeconds, err = row.Number("arrival_s"); err != nil {
			return nil, err
		}
		if j.AloneSeconds, err = row.Number("solo_s"); err != nil {
			return nil, err
		}
		if j.AloneSeconds == 0 || i > 0 && j.ArrivalSeconds < jobs[i-1].ArrivalSeconds {
			return nil, fmt.Errorf("parse %s: want solo_s above 0, and arrival_s in ascending order", row.Where())
		}
	}
	if len(jobs) == 0 {
		return nil, fmt.Errorf("parse %s: no job", name)
	}
	return jobs, nil
}
