package file

import (
	"fmt"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// SizesTrials reports whether trials get other numbers of devices while they run.
func (e Experiment) SizesTrials() bool { return len(e.sizes()) > 1 }

func (e Experiment) sizes() []float64 { return contract.Experiment(e).Sizes() }

// BatchDevices returns the number of devices whose batches make one step of the training, however many devices the job
// has. It is 0 if every device has the batch size of the job, however many there are.
func (e Experiment) BatchDevices() int {
	if !e.SizesTrials() {
		return 0
	}
	return int(e.sizes()[0])
}

// Splits reports whether another number of devices can share a step equally: the step has batch samples on each device
// that the trial is submitted with. Only then does the trial learn the same.
func (e Experiment) Splits(batch, devices float64) bool {
	sizes := e.sizes()
	return len(sizes) == 0 || math.Mod(batch*sizes[0], devices) == 0
}

// FrozenDevices returns a field of the job that keeps trials from changing their number of devices, and why. Both are
// empty if no field does.
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
		for name := range train.Placeholders(text) {
			if name == Devices {
				return field, fmt.Sprintf("a trial does not always get the devices that it is to have: read NUM_GPUS and NUM_NODES instead of ${%s}", Devices)
			}
		}
	}
	return "", ""
}

// batches lists the batch sizes that trials may have. Those of a range cannot be listed.
func (e Experiment) batches() []float64 {
	i := slices.IndexFunc(e.Space, func(p contract.Parameter) bool { return p.Name == batchSize })
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
