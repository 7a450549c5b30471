package progress

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLinesBecomeReports(t *testing.T) {
	pattern, err := ParsePattern(`Epoch (?P<epoch>\d+)(?: \[(?P<step>\d+)/(?P<of>\d+)\])?.*?(?:loss[:=] ?(?P<loss>\S+))?$`)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		lines []string
		ended []Report
		now   Report
		last  Report
	}{
		{
			"from 1, one line each",
			[]string{"Epoch 1 loss: 0.5", "other", "Epoch 2 loss: 0.25"},
			[]Report{{EpochsDone: 1, Loss: new(0.5), Metrics: map[string]float64{}}},
			Report{EpochsDone: 1, Loss: new(0.25), Metrics: map[string]float64{}},
			Report{EpochsDone: 2, Last: true, Loss: new(0.25), Metrics: map[string]float64{}},
		},
		{
			"from 0, with steps",
			[]string{"Epoch 0 [5/10] loss=1", "Epoch 0 [10/10] loss=0.5", "Epoch 1 [5/10] loss=nan"},
			[]Report{{EpochsDone: 1, Loss: new(0.5), Metrics: map[string]float64{}}},
			Report{EpochsDone: 1, Step: new(15), EpochStep: new(5), EpochSteps: 10, Metrics: map[string]float64{"nonfinite_loss": 1}},
			Report{EpochsDone: 2, Last: true, Metrics: map[string]float64{"nonfinite_loss": 1}},
		},
		{
			"the newest loss counts",
			[]string{"Epoch 1 loss=1", "Epoch 1 loss=inf", "Epoch 2 loss=nan", "Epoch 2 loss=2"},
			[]Report{{EpochsDone: 1, Metrics: map[string]float64{"nonfinite_loss": 1}}},
			Report{EpochsDone: 1, Loss: new(2.0), Metrics: map[string]float64{}},
			Report{EpochsDone: 2, Last: true, Loss: new(2.0), Metrics: map[string]float64{}},
		},
		{"resumed, from 1", []string{"Epoch 7"}, nil, Report{EpochsDone: 6}, Report{EpochsDone: 7, Last: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var tracker Tracker
			var ended []Report
			for _, line := range c.lines {
				p, ok := pattern.Line(line)
				if !ok {
					continue
				}
				if e, ok := tracker.Add(p); ok {
					ended = append(ended, e)
				}
			}
			now, _ := tracker.Now()
			last, _ := tracker.Close()
			if diff := cmp.Diff([]any{c.ended, c.now, c.last}, []any{ended, now, last}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A step that is no number says nothing of the training; a column that is none does.
func TestValuesThatAreNoNumber(t *testing.T) {
	p, ok := Names{}.Row([]string{"epoch", "step", "train_loss"}, []string{"3", "nan", "nan"})
	if !ok || p.Epoch != 3 || p.Step != -1 || len(p.Metrics) != 1 || !math.IsNaN(p.Metrics["loss"]) {
		t.Errorf("%+v", p)
	}
	if _, scalars := Scalars(field(nil, eventSummary, field(nil, summaryValue, float32s(field(nil, valueTag, []byte("loss")), valueSimple, float32(math.NaN()))))); !math.IsNaN(scalars["loss"]) {
		t.Errorf("%v", scalars)
	}
}

func TestPatternsThatSayNothing(t *testing.T) {
	for _, text := range []string{`loss (?P<loss>\d+)`, `(?P<epoch`} {
		if _, err := ParsePattern(text); err == nil {
			t.Errorf("%q is a pattern", text)
		}
	}
}

func TestRowsOfLightning(t *testing.T) {
	p, ok := Names{}.Row([]string{"epoch", "step", "train_loss", "val_acc"}, []string{"3", "99", "0.5", ""})
	if diff := cmp.Diff(Point{Epoch: 3, Step: 99, Metrics: map[string]float64{"loss": 0.5}}, p); !ok || diff != "" {
		t.Error(diff)
	}
	if p, ok = (Names{"step": "iteration", "loss": "cost"}).Row([]string{"iteration", "cost"}, []string{"7", "2"}); !ok || p.Step != 7 || p.Metrics["loss"] != 2 {
		t.Errorf("%+v", p)
	}
}

// field appends a field of bytes.
func field(to []byte, number int, text []byte) []byte {
	to = binary.AppendUvarint(to, uint64(number)<<3|2)
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}

func float32s(to []byte, number int, x float32) []byte {
	to = binary.AppendUvarint(to, uint64(number)<<3|5)
	return binary.LittleEndian.AppendUint32(to, math.Float32bits(x))
}

func record(data []byte) []byte {
	text := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	text = binary.LittleEndian.AppendUint32(text, masked(text))
	return binary.LittleEndian.AppendUint32(append(text, data...), masked(data))
}

// scalarEvent is an Event of PyTorch (a number) and of TensorFlow (a tensor).
func scalarEvent() []byte {
	event := binary.AppendUvarint(nil, eventStep<<3)
	event = binary.AppendUvarint(event, 300)
	torch := float32s(field(nil, valueTag, []byte("Loss/train")), valueSimple, 0.5)
	tensor := float32s(binary.AppendUvarint(binary.AppendUvarint(nil, tensorType<<3), isFloat), tensorFloats, 0.75)
	keras := field(field(nil, valueTag, []byte("epoch_accuracy")), valueTensor, tensor)
	return field(event, eventSummary, field(field(nil, summaryValue, torch), summaryValue, keras))
}

func TestScalarsOfTensorBoard(t *testing.T) {
	// Every event file begins so: 24 bytes follow, which name the version of the format.
	if sum := masked([]byte{24, 0, 0, 0, 0, 0, 0, 0}); sum != 0x224b7fa3 {
		t.Errorf("checksum %x", sum)
	}
	text := record(scalarEvent())
	for n := range text {
		if _, size, err := NextRecord(text[:n]); size != 0 || err != nil {
			t.Fatalf("%d of %d bytes are a record of %d, error %v", n, len(text), size, err)
		}
	}
	data, size, err := NextRecord(text)
	if err != nil || size != int64(len(text)) {
		t.Fatalf("%d bytes, error %v", size, err)
	}
	step, scalars := Scalars(data)
	if diff := cmp.Diff(map[string]float64{"Loss/train": 0.5, "epoch_accuracy": 0.75}, scalars); diff != "" || step != 300 {
		t.Errorf("step %d %s", step, diff)
	}
	text[recordHead] ^= 1
	if _, _, err := NextRecord(text); err == nil {
		t.Error("a damaged record is read")
	}
}

func FuzzTensorBoard(f *testing.F) {
	f.Add(record(scalarEvent()))
	f.Add(record(bytes.Repeat([]byte{0xff}, 40)))
	f.Fuzz(func(t *testing.T, text []byte) {
		data, size, err := NextRecord(text)
		if size < 0 || err == nil && data != nil && size > int64(len(text)) {
			t.Fatalf("a record of %d bytes in %d", size, len(text))
		}
		Scalars(data)
		Scalars(text)
	})
}
