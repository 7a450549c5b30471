package simgpu

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

func TestDevices(t *testing.T) {
	sick := filepath.Join(t.TempDir(), "sick")
	r := Reader{Node: "n1", Count: 2, Model: "NVIDIA H100", Memory: 8 * unit.GiB, Sick: sick}
	first, err := r.Devices()
	if err != nil || len(first) != 2 {
		t.Fatalf("%+v, error %v", first, err)
	}
	form := regexp.MustCompile(`^SIM(-[0-9a-f]{8})(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	for i, d := range first {
		want := gpu.Device{Index: i, UUID: d.UUID, Model: "NVIDIA H100", Memory: 8 * unit.GiB, Simulated: true}
		if diff := cmp.Diff(want, d); diff != "" || !form.MatchString(d.UUID) {
			t.Errorf("%s (-want +got)\n%s", d.UUID, diff)
		}
	}
	other, _ := Reader{Node: "n2", Count: 1}.Devices()
	if first[0].UUID == first[1].UUID || first[0].UUID == other[0].UUID {
		t.Errorf("two GPUs have one name: %+v, %+v", first, other)
	}
	for _, step := range []struct {
		file string
		sick [2]bool
	}{{"gpu:1\n", [2]bool{false, true}}, {"gpu:0 gpu:1", [2]bool{true, true}}, {"", [2]bool{}}} {
		if err := os.WriteFile(sick, []byte(step.file), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := r.Devices()
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if (got[i].Trouble != "") != step.sick[i] || got[i].UUID != first[i].UUID {
				t.Errorf("file %q: %+v", step.file, got[i])
			}
		}
	}
	r.Sick = filepath.Dir(sick)
	if _, err := r.Devices(); err == nil {
		t.Error("a file that cannot be read went unsaid")
	}
}
