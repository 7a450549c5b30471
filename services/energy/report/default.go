package report

import (
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Defaults returns the cost of jobs in their default configuration: the cost stated for the job's name, else the mean
// of the jobs of its group with the submitted batch size. groups are the records of the contract, by their keys.
func Defaults(stated map[string]Default, groups map[string]contract.Group) func(train.Job) (Default, bool) {
	return func(j train.Job) (Default, bool) {
		if d, known := stated[j.Spec.Name]; known || !j.Spec.Recurs() {
			return d, known
		}
		record := groups[contract.GroupKey(j.Spec)]
		joules, seconds, known := record.Usual(j.SubmittedBatch)
		return Default{Energy: unit.Energy(joules * float64(unit.Joule)), Seconds: seconds}, known
	}
}
