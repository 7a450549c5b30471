package file

import (
	"fmt"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// SizesTrials says whether trials are given other numbers of devices while they run.
func (e Experiment) SizesTrials() bool { return len(e.sizes()) > 1 }

// sizes are on how many devices a trial may run, the first is with how many it is submitted; nil where they are not chosen while it runs.
func (e Experiment) sizes() []float64 {
	i := slices.IndexFunc(e.System, func(f Factor) bool { return f.Name == Devices && !f.Fixed })
	if i < 0 || e.Mode != PipeTune {
		return nil
	}
	return e.System[i].Values
}

// BatchDevices is on how many devices together the job has its batch size on each, whatever it runs on; 0 where it has that on each of any number.
func (e Experiment) BatchDevices() int {
	if !e.SizesTrials() {
		return 0
	}
	return int(e.sizes()[0])
}

// Splits says whether a step of so many samples on each of the devices with which a trial is submitted can be made on another number of them, each with as many
// as the others: only then is the same learnt.
func (e Experiment) Splits(batch, devices float64) bool {
	sizes := e.sizes()
	return len(sizes) == 0 || math.Mod(batch*sizes[0], devices) == 0
}

// FrozenDevices names a field of the job that does not allow for other numbers of devices while trials run, and what is wrong with it; both are empty where all
// do.
func (e Experiment) FrozenDevices() (field, wrong string) {
	if !e.SizesTrials() {
		return "", ""
	}
	least, most := int(slices.Min(e.sizes())), int(slices.Max(e.sizes()))
	switch {
	case e.Job.MinDevices > least:
		return "min_devices", fmt.Sprintf("system.devices has %d, and the job wants %d at least: leave it out", least, e.Job.MinDevices)
	case e.Job.MaxDevices > 0 && e.Job.MaxDevices < most:
		return "max_devices", fmt.Sprintf("system.devices has %d, and the job takes %d at most: leave it out", most, e.Job.MaxDevices)
	case e.Job.SingleDevice:
		return "single_device", fmt.Sprintf("system.devices has %d", most)
	case e.Job.Strategy == train.StrategyNone:
		return "strategy", fmt.Sprintf("system.devices has %d, and strategy none uses one: use all_reduce", most)
	}
	for _, batch := range e.batches() {
		for _, n := range e.sizes() {
			if !e.Splits(batch, n) {
				return batchSize, fmt.Sprintf("a step of %g samples on each of %g devices cannot be split evenly over %g of them (system.devices)", batch, e.sizes()[0], n)
			}
		}
	}
	for field, text := range e.texts() {
		for name := range placeholders(text) {
			if name == Devices {
				return field, fmt.Sprintf("a trial does not always get the devices that it is to have: read NUM_GPUS and NUM_NODES instead of ${%s}", Devices)
			}
		}
	}
	return "", ""
}

// batches are the batch sizes that trials may have, as far as they can be listed.
func (e Experiment) batches() []float64 {
	i := slices.IndexFunc(e.Space, func(p search.Parameter) bool { return p.Name == batchSize })
	if i < 0 {
		return []float64{float64(e.Job.BatchSize)}
	}
	var all []float64
	for _, v := range e.Space[i].Values {
		if x, number := v.Float(); number {
			all = append(all, x)
		}
	}
	return all
}

// submit has the job of a trial ask for the devices that it begins with. Others are wished for while it runs, and the strategy is that of several.
func (e Experiment) submit(job *train.Spec, setting map[string]float64) {
	n := int(setting[Devices])
	if sizes := e.sizes(); len(sizes) > 0 {
		n = int(sizes[0])
	}
	if n > 0 {
		job.MinDevices, job.MaxDevices = n, n
	}
	if e.SizesTrials() && job.Strategy == "" {
		job.Strategy = train.StrategyAllReduce
	}
}
