package checkpoint_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/examples/gotrainer/checkpoint"
	"github.com/switchyard-dl/switchyard/examples/gotrainer/nn"
)

func state(epochs uint64) checkpoint.State {
	shape := nn.Shape{Features: 2, Hidden: 3, Classes: 2}
	weights := nn.Initial(shape, epochs)
	return checkpoint.State{
		Epochs: epochs, Steps: 10 * epochs, Seed: 4, Shape: shape,
		RNG: bytes.Repeat([]byte{byte(epochs)}, 20), Weights: weights, Velocity: make([]float64, len(weights)),
	}
}

func encode(t testing.TB, s checkpoint.State) []byte {
	t.Helper()
	data, err := checkpoint.Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestDecodeReversesEncode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := nn.Shape{
			Features: rapid.IntRange(1, 5).Draw(t, "features"),
			Hidden:   rapid.IntRange(1, 5).Draw(t, "hidden"),
			Classes:  rapid.IntRange(2, 5).Draw(t, "classes"),
		}
		n := shape.Parameters()
		numbers := rapid.OneOf(rapid.Float64(), rapid.Just(math.NaN()), rapid.Just(math.Copysign(0, -1)))
		s := checkpoint.State{
			Epochs: rapid.Uint64().Draw(t, "epochs"), Steps: rapid.Uint64().Draw(t, "steps"),
			Seed: rapid.Uint64().Draw(t, "seed"), Shape: shape,
			RNG:      rapid.SliceOfN(rapid.Byte(), 20, 20).Draw(t, "rng"),
			Weights:  rapid.SliceOfN(numbers, n, n).Draw(t, "weights"),
			Velocity: rapid.SliceOfN(numbers, n, n).Draw(t, "velocity"),
		}
		data, err := checkpoint.Encode(s)
		if err != nil {
			t.Fatal(err)
		}
		back, err := checkpoint.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if back.Epochs != s.Epochs || back.Steps != s.Steps || back.Seed != s.Seed || back.Shape != s.Shape {
			t.Fatalf("%+v came back as %+v", s, back)
		}
		again, err := checkpoint.Encode(back)
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("encoded again: %v, other bytes", err)
		}
	})
}

func TestEveryTruncationAndEveryFlippedBitIsRefused(t *testing.T) {
	data := encode(t, state(1))
	for n := range len(data) {
		if _, err := checkpoint.Decode(data[:n]); !errors.Is(err, checkpoint.ErrCorrupt) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
		flipped := bytes.Clone(data)
		flipped[n] ^= 1 << (n % 8)
		if _, err := checkpoint.Decode(flipped); !errors.Is(err, checkpoint.ErrCorrupt) {
			t.Fatalf("bit flipped in byte %d: %v", n, err)
		}
	}
	if _, err := checkpoint.Decode(append(data, 0)); !errors.Is(err, checkpoint.ErrCorrupt) {
		t.Fatalf("one byte longer: %v", err)
	}
}

// The body gets its right checksum, so that fuzzing gets past it.
func FuzzDecode(f *testing.F) {
	whole := encode(f, state(1))
	f.Add(whole[:len(whole)-sha256.Size])
	f.Add([]byte("gotrain\x01"))
	f.Fuzz(func(t *testing.T, body []byte) {
		sum := sha256.Sum256(body)
		data := append(bytes.Clone(body), sum[:]...)
		s, err := checkpoint.Decode(data)
		if err != nil {
			if !errors.Is(err, checkpoint.ErrCorrupt) {
				t.Fatalf("refused without ErrCorrupt: %v", err)
			}
			return
		}
		if again, err := checkpoint.Encode(s); err != nil || !bytes.Equal(again, data) {
			t.Fatalf("accepted, but encodes to other bytes: %v", err)
		}
	})
}

func TestLoad(t *testing.T) {
	first, second := encode(t, state(1)), encode(t, state(2))
	tests := map[string]struct {
		current, previous []byte // nil: no such file
		epochs            uint64 // 0: none found
		warning, err      string
	}{
		"nothing yet":                  {},
		"one":                          {current: first, epochs: 1},
		"two":                          {current: second, previous: first, epochs: 2},
		"newest truncated":             {current: second[:50], previous: first, epochs: 1, warning: "going back"},
		"newest altered":               {current: append([]byte("x"), second...), previous: first, epochs: 1, warning: "corrupt"},
		"crash between renames":        {previous: first, epochs: 1, warning: "going back"},
		"the only one is corrupt":      {current: first[:99], err: "there is no previous one"},
		"both are corrupt":             {current: second[:99], previous: first[:99], err: "nor can the previous one be used"},
		"previous corrupt, newest not": {current: second, previous: []byte("?"), epochs: 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			for file, data := range map[string][]byte{checkpoint.CurrentName: test.current, checkpoint.PreviousName: test.previous} {
				if data == nil {
					continue
				}
				if err := os.WriteFile(filepath.Join(path, file), data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			directory, err := checkpoint.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			got, err := directory.Load()
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("error %v, want one with %q", err, test.err)
				}
				return
			}
			if err != nil || got.Found != (test.epochs > 0) || got.State.Epochs != test.epochs ||
				!strings.Contains(got.Warning, test.warning) || (test.warning == "") != (got.Warning == "") {
				t.Errorf("epoch %d, found %v, warning %q, error %v; want epoch %d, warning %q",
					got.State.Epochs, got.Found, got.Warning, err, test.epochs, test.warning)
			}
		})
	}
}

func TestSaveKeepsTwoAndLeavesNothingElse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "not", "there", "yet")
	if _, err := checkpoint.Open(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "checkpoint.unfinished-9"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	directory, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for epoch := uint64(1); epoch <= 4; epoch++ {
		if err := directory.Save(encode(t, state(epoch))); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string][]byte{checkpoint.CurrentName: encode(t, state(4)), checkpoint.PreviousName: encode(t, state(3))}
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(path, entry.Name()))
		if err != nil || !bytes.Equal(data, want[entry.Name()]) {
			t.Errorf("%s: %d bytes, error %v", entry.Name(), len(data), err)
		}
	}
	if len(entries) != len(want) {
		t.Errorf("%d files, want %d", len(entries), len(want))
	}
}
