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
	// Thinned is set if some are left out, spread over all of them; the last one never is. With after none is.
	Thinned bool `json:"thinned,omitempty"`
	// Next is the after of the next page, if there is one.
	Next int `json:"next,omitempty"`
}

// Add adds a fact; a body that cannot be read adds nothing.
func (all *Epochs) Add(at time.Time, body []byte) {
	if e, err := event.Decode[event.EpochEnded](body); err == nil {
		all.put(Epoch{at, e})
	}
}

// put adds an epoch, and returns by how much it makes the answer larger.
func (all *Epochs) put(e Epoch) (bytes int) {
	i, again := slices.BinarySearchFunc(all.Epochs, e.EpochsDone, func(before Epoch, done int) int { return cmp.Compare(before.EpochsDone, done) })
	if again {
		bytes = e.bytes() - all.Epochs[i].bytes()
		all.Epochs[i] = e
		return bytes
	}
	all.Epochs = slices.Insert(all.Epochs, i, e)
	return e.bytes()
}

// bytes is about the size of an epoch in an answer.
func (e Epoch) bytes() int {
	const others, number = 300, 24
	n := others
	for name := range e.Metrics {
		n += len(name) + number
	}
	return n
}

// An answer has at most mostEpochs and about mostEpochBytes, whatever a job has reported.
const (
	mostEpochs     = 2000
	mostEpochBytes = 1 << 20
)

// BoundedEpochs gathers the epochs of a job for one answer: those after an epoch as far as there is room for them, or
// some of all.
type BoundedEpochs struct {
	Epochs

	paged bool
	after int
	bytes int
}

// AllEpochs gathers some of all epochs.
func AllEpochs() *BoundedEpochs { return &BoundedEpochs{Epochs: Epochs{Epochs: []Epoch{}}} }

// EpochsAfter gathers the first epochs after one; 0: from the first on.
func EpochsAfter(after int) *BoundedEpochs {
	b := AllEpochs()
	b.paged, b.after = true, after
	return b
}

// Add adds a fact; a body that cannot be read adds nothing.
func (b *BoundedEpochs) Add(at time.Time, body []byte) {
	e, err := event.Decode[event.EpochEnded](body)
	if err != nil || b.paged && (e.EpochsDone <= b.after || b.Next > 0 && e.EpochsDone > b.Next) {
		return
	}
	b.bytes += b.put(Epoch{at, e})
	for n := len(b.Epochs.Epochs); n > 1 && (n > mostEpochs || b.bytes > mostEpochBytes); n = len(b.Epochs.Epochs) {
		if b.paged {
			b.bytes -= b.Epochs.Epochs[n-1].bytes()
			b.Epochs.Epochs = b.Epochs.Epochs[:n-1]
			b.Next = b.Epochs.Epochs[n-2].EpochsDone
			continue
		}
		b.halve()
	}
}

// halve leaves out every other epoch, but not the last one.
func (b *BoundedEpochs) halve() {
	all := b.Epochs.Epochs
	kept := make([]Epoch, 0, len(all)/2+1)
	b.bytes = 0
	for i := (len(all) + 1) % 2; i < len(all); i += 2 {
		kept = append(kept, all[i])
		b.bytes += all[i].bytes()
	}
	b.Epochs.Epochs, b.Thinned = kept, true
}
