package meter

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// steady is a meter of constant power.
type steady struct {
	method, component string
	watts             float64
	err               error
	covered           *time.Duration
}

func (s steady) Method() string { return s.method }

func (s steady) Read(d time.Duration) ([]Spent, error) {
	over := d
	if s.covered != nil {
		over = *s.covered
	}
	return []Spent{{s.component, unit.Watts(s.watts).Over(over), s.covered}}, s.err
}

// board is a GPU whose counter and power disagree.
type board struct{ energy unit.Energy }

func (b *board) Devices() ([]gpu.Device, error) {
	return []gpu.Device{{Index: 0, Instance: 1}, {Index: 0, Instance: 2}}, nil
}

func (b *board) Sample(int) (gpu.Sample, error) {
	b.energy += unit.Watts(100).Over(time.Second)
	return gpu.Sample{Energy: b.energy, HasEnergy: true, Power: unit.Watts(90), HasPower: true}, nil
}

// TestMetersAreComparedWithTheBestOne: the first of each component is the measure of the others, a plug is that of the
// sum of the components, and a meter that fails says why.
func TestMetersAreComparedWithTheBestOne(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "stat"), []byte("cpu  100 0 0 900 0 0 0 0 0 0\ncpu0 100 0 0 900 0 0 0 0 0 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	half := 500 * time.Millisecond
	c := NewComparison(Config{
		Proc: proc.Root(root), GPUs: &board{}, Model: Model{Idle: unit.Watts(30), Core: unit.Watts(10)},
		Sources: []Source{
			steady{method: "rapl", component: event.ComponentCPU, watts: 20},
			steady{method: "pcm", err: errors.New("the log is silent")},
			steady{method: "pdu", component: event.ComponentNode, watts: 160, covered: &half},
		},
	})
	for i := range 11 {
		d := time.Second
		if i == 0 {
			d = 0
		}
		if err := c.Read(d); err != nil {
			t.Fatal(err)
		}
	}
	off := func(ratio float64) *float64 { return &ratio }
	want := []Compared{
		{Method: "pcm", Trouble: "the log is silent"},
		{Component: "gpu", Device: "gpu:0", Method: "nvml_counter", Energy: unit.Watts(100).Over(10 * time.Second), Seconds: 10},
		{Component: "gpu", Device: "gpu:0", Method: "nvml_power", Energy: unit.Watts(90).Over(10 * time.Second), Seconds: 10, Error: off(-0.1)},
		{Component: "cpu", Method: "rapl", Energy: unit.Watts(20).Over(10 * time.Second), Seconds: 10},
		{Component: "cpu", Method: "modelled", Energy: unit.Watts(30).Over(10 * time.Second), Seconds: 10, Error: off(0.5)},
		{Component: "node", Method: "pdu", Energy: unit.Watts(160).Over(5 * time.Second), Seconds: 5},
		{Component: "node", Method: MethodSum, Energy: unit.Watts(120).Over(10 * time.Second), Seconds: 10, Error: off(-0.25)},
	}
	close := cmpopts.EquateApprox(0, 1e-9)
	if diff := cmp.Diff(want, c.Result(), close); diff != "" {
		t.Error(diff)
	}
	if w := (Compared{}).Watts(); w != 0 || math.IsNaN(w) {
		t.Errorf("a meter that measured nothing shows %v W", w)
	}
}
