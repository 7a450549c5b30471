package state

import (
	"cmp"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Limits are the batch sizes with which a job may run: globally from BaseBatch to MaxBatch, per device and pass from
// MinLocal to MaxLocal.
type Limits struct{ BaseBatch, MaxBatch, MinLocal, MaxLocal int }

// LimitsOn are the limits, on a model of device, of a job that leaves its batch to the planner.
func LimitsOn(model string, s train.Spec) Limits {
	a := s.AdaptiveBatch
	base := max(s.BaseBatch(), 1)
	return Limits{
		BaseBatch: base, MaxBatch: max(a.Max, base), MinLocal: max(a.MinPerDevice, 1),
		MaxLocal: max(cmp.Or(a.MaxPerDeviceOn[model], s.MaxLocalBatch()), 1),
	}
}
