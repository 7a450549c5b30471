package view

import (
	"cmp"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
)

// Epoch is what a job reported at the end of an epoch.
type Epoch struct {
	// At is when.
	At time.Time `json:"at"`
	event.EpochEnded
}

// Epochs are the epochs of a job in their order. An epoch that was trained again counts once, as it was last.
type Epochs struct {
	// Epochs are those that have ended.
	Epochs []Epoch `json:"epochs"`
}

// Add adds a fact; a body that cannot be read adds nothing.
func (all *Epochs) Add(at time.Time, body []byte) {
	e, err := event.Decode[event.EpochEnded](body)
	if err != nil {
		return
	}
	i, again := slices.BinarySearchFunc(all.Epochs, e.EpochsDone, func(before Epoch, done int) int { return cmp.Compare(before.EpochsDone, done) })
	if again {
		all.Epochs[i] = Epoch{at, e}
		return
	}
	all.Epochs = slices.Insert(all.Epochs, i, Epoch{at, e})
}
