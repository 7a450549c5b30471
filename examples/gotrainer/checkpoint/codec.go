// Package checkpoint holds the state of a training between two steps and stores it on disk so that a crash at any
// moment leaves a whole one. It does not decide when to save.
package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/switchyard-dl/switchyard/examples/gotrainer/nn"
)

// ErrCorrupt says that bytes are not a whole checkpoint.
var ErrCorrupt = errors.New("corrupt checkpoint")

const (
	magic   = "gotrain\x01" // the last byte is the version of the format
	within  = "gotrain\x02" // the format of a state within an epoch: its place there follows the header
	rngSize = 20            // a marshalled rand.PCG
)

// header is the fixed part in front of the vectors, little endian.
type header struct {
	Magic                     [len(magic)]byte
	Epochs, Steps, Seed       uint64
	Features, Hidden, Classes uint32
	RNG                       [rngSize]byte
}

// place is how far an epoch is.
type place struct{ EpochSteps, Had uint64 }

// State is all that the next step depends on.
type State struct {
	// Epochs and Steps count the epochs and steps since the training began.
	Epochs, Steps uint64
	// EpochSteps counts the steps of the epoch after Epochs, and Had their samples; RNG is as it was before that epoch.
	EpochSteps, Had uint64
	// Seed is the seed of the training set.
	Seed  uint64
	Shape nn.Shape
	// RNG is the marshalled source of the epochs' permutations.
	RNG []byte
	// Weights and Velocity are the parameters and their momentum.
	Weights, Velocity []float64
}

// Encode returns the bytes of a state: header, weights, momentum, SHA-256 of it all.
func Encode(s State) ([]byte, error) {
	if len(s.Weights) != s.Shape.Parameters() || len(s.Velocity) != len(s.Weights) || len(s.RNG) != rngSize {
		return nil, fmt.Errorf("encode checkpoint: %d weights, %d velocities and %d bytes of RNG do not fit the network",
			len(s.Weights), len(s.Velocity), len(s.RNG))
	}
	h := header{
		Epochs: s.Epochs, Steps: s.Steps, Seed: s.Seed,
		Features: uint32(s.Shape.Features), Hidden: uint32(s.Shape.Hidden), Classes: uint32(s.Shape.Classes),
	}
	copy(h.Magic[:], magic)
	copy(h.RNG[:], s.RNG)
	parts := []any{h, s.Weights, s.Velocity}
	if s.Had > 0 {
		copy(h.Magic[:], within)
		parts = []any{h, place{s.EpochSteps, s.Had}, s.Weights, s.Velocity}
	}
	var out bytes.Buffer
	out.Grow(binary.Size(h) + binary.Size(place{}) + 16*len(s.Weights) + sha256.Size)
	for _, part := range parts {
		if err := binary.Write(&out, binary.LittleEndian, part); err != nil {
			return nil, fmt.Errorf("encode checkpoint: %w", err)
		}
	}
	sum := sha256.Sum256(out.Bytes())
	out.Write(sum[:])
	return out.Bytes(), nil
}

// Decode is the reverse of Encode. It returns ErrCorrupt for invalid bytes.
func Decode(data []byte) (State, error) {
	var h header
	fixed := binary.Size(h)
	if len(data) < fixed+sha256.Size {
		return State{}, fmt.Errorf("%w: only %d bytes", ErrCorrupt, len(data))
	}
	body, sum := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	version := string(body[:len(magic)])
	if version != magic && version != within {
		return State{}, fmt.Errorf("%w: not written by this trainer, or by another version of it", ErrCorrupt)
	}
	if sha256.Sum256(body) != [sha256.Size]byte(sum) {
		return State{}, fmt.Errorf("%w: truncated or altered, its checksum does not match its %d bytes", ErrCorrupt, len(data))
	}
	if _, err := binary.Decode(body, binary.LittleEndian, &h); err != nil {
		return State{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	s := State{
		Epochs: h.Epochs, Steps: h.Steps, Seed: h.Seed, RNG: h.RNG[:],
		Shape: nn.Shape{Features: int(h.Features), Hidden: int(h.Hidden), Classes: int(h.Classes)},
	}
	vectors := body[fixed:]
	if version == within {
		var at place
		n, err := binary.Decode(vectors, binary.LittleEndian, &at)
		if err != nil {
			return State{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		s.EpochSteps, s.Had, vectors = at.EpochSteps, at.Had, vectors[n:]
	}
	// In floating point, since absurd sizes would overflow an integer and pass.
	f, n, c := float64(h.Features), float64(h.Hidden), float64(h.Classes)
	if s.Shape.Validate() != nil || (f*n+n+n*n+n+n*c+c)*16 != float64(len(vectors)) {
		return State{}, fmt.Errorf("%w: %d bytes of weights and momentum do not fit its network", ErrCorrupt, len(vectors))
	}
	half := len(vectors) / 2
	s.Weights, s.Velocity = floats(vectors[:half]), floats(vectors[half:])
	return s, nil
}

func floats(data []byte) []float64 {
	v := make([]float64, len(data)/8)
	for i := range v {
		v[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
	}
	return v
}
