package simgpu

import (
	"path/filepath"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

func TestWhatIsInUseDrawsUpToItsLimit(t *testing.T) {
	r := Reader{
		Node: "n", Count: 2, Limits: filepath.Join(t.TempDir(), "limits"), Draw: 250 * unit.Watt,
		InUse: func(d train.DeviceID) bool { return d == "gpu:0" },
	}
	for _, c := range []struct {
		index     int
		limit     unit.Power
		watts     unit.Power
		processes int
	}{{0, 0, 250, 1}, {0, 150, 150, 1}, {0, 300, 250, 1}, {1, 0, 50, 0}, {1, 100, 50, 0}} {
		if c.limit > 0 {
			if err := r.SetPowerLimit(c.index, c.limit*unit.Watt); err != nil {
				t.Fatal(err)
			}
		}
		s, err := r.Sample(c.index)
		if err != nil || !s.HasPower || s.Power != c.watts*unit.Watt || len(s.Processes) != c.processes {
			t.Errorf("%+v: %+v, %v", c, s, err)
		}
	}
	if err := r.SetPowerLimit(0, 50*unit.Watt); err == nil {
		t.Error("a limit below the least was taken")
	}
	r.Draw = 0
	if s, err := r.Sample(0); err != nil || s.HasPower || s.HasEnergy {
		t.Errorf("without a draw: %+v, %v", s, err)
	}
}
