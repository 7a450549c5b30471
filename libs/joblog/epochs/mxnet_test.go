package epochs

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// What versions of MXNet write, with the beginnings that its examples and its tests give the lines.
const (
	newerMXNet = `2018-03-01 10:00:00,100 Node[0] start with arguments Namespace(batch_size=128, kv_store='dist_sync', load_epoch=None)
2018-03-01 10:00:05,100 Node[0] Epoch[0] Batch [0-20]	Speed: 1522.65 samples/sec	accuracy=0.253348	cross-entropy=2.101
2018-03-01 10:00:09,100 Node[0] Epoch[0] Train-accuracy=0.421875
2018-03-01 10:00:09,100 Node[0] Epoch[0] Train-cross-entropy=1.700000
2018-03-01 10:00:09,200 Node[0] Epoch[0] Time cost=8.806
2018-03-01 10:00:09,900 Node[0] Saved checkpoint to "/snapshots/model-0001.params"
2018-03-01 10:00:11,100 Node[0] Epoch[0] Validation-accuracy=0.484375
2018-03-01 10:00:11,100 Node[0] Epoch[0] Validation-cross-entropy=1.450000
2018-03-01 10:00:15,100 Node[0] Epoch[1] Batch [0-20]	Speed: 1500.00 samples/sec	accuracy=nan	cross-entropy=1.5
2018-03-01 10:00:19,200 Node[0] Epoch[1] Time cost=8.500
`
	olderMXNet = `INFO:root:Epoch[4] Batch [100]  Speed: 12488.17 samples/sec     Train-accuracy=0.954219
INFO:root:Epoch[4] Batch [100]  Speed: 12488.17 samples/sec     Train-top_k_accuracy_5=0.990000
INFO:root:Epoch[4] Resetting Data Iterator
INFO:root:Epoch[4] Time cost=4.611
INFO:root:Epoch[4] Validation-accuracy=0.963575
INFO:root:Epoch[5] Batch [100]  Speed: 15046.15 samples/sec     Train-accuracy=0.970625
`
)

// readAll reads a log, and hands over to a new reader after each line.
func readAll(t *testing.T, format, text string) []Epoch {
	t.Helper()
	var all []Epoch
	var kept json.RawMessage
	for line := range strings.Lines(text) {
		r, err := New(format, kept)
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := r.Line(line); ok {
			all = append(all, e)
		}
		if kept, err = json.Marshal(r); err != nil {
			t.Fatal(err)
		}
	}
	r, err := New(format, kept)
	if err != nil {
		t.Fatal(err)
	}
	if e, ok := r.Close(); ok {
		all = append(all, e)
	}
	return all
}

func TestOutputOfMXNet(t *testing.T) {
	loss := func(x float64) *float64 { return &x }
	for name, c := range map[string]struct {
		text string
		want []Epoch
	}{
		"newer": {newerMXNet, []Epoch{
			{Epoch: 1, Seconds: 8.806, Loss: loss(1.7), Metrics: map[string]float64{"train_accuracy": 0.421875, "accuracy": 0.484375, "validation_loss": 1.45}},
			{Epoch: 2, Seconds: 8.5, Loss: loss(1.5), Metrics: map[string]float64{"nonfinite_train_accuracy": 1}},
		}},
		"older, resumed, killed": {olderMXNet, []Epoch{
			{Epoch: 5, Seconds: 4.611, Metrics: map[string]float64{"train_accuracy": 0.954219, "train_top_k_accuracy_5": 0.99, "accuracy": 0.963575}},
		}},
		"diverged": {"Epoch[0] Batch [20] cross-entropy=1.5\nEpoch[0] Train-cross-entropy=nan\nEpoch[0] Time cost=2\nEpoch[0] Validation-accuracy=nan\n", []Epoch{
			{Epoch: 1, Seconds: 2, Metrics: map[string]float64{"nonfinite_loss": 1, "nonfinite_accuracy": 1}},
		}},
		"another program": {"Epoch 1: loss=3\nEpoch[x] Time cost=1\n", nil},
	} {
		if diff := cmp.Diff(c.want, readAll(t, train.LogMXNet, c.text)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestUnknownFormatsAreNamed(t *testing.T) {
	if _, err := New("caffe", nil); err == nil || !strings.Contains(err.Error(), `"caffe"`) {
		t.Errorf("%v", err)
	}
	if _, err := New(train.LogMXNet, json.RawMessage("[")); err == nil {
		t.Error("a damaged state was taken")
	}
}
