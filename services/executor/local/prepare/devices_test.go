package prepare

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// The driver numbers its GPUs otherwise than the indices. A job sees the device files of its own; if the driver does
// not know one of them, all.
func TestAJobSeesTheFilesOfItsOwnGPUs(t *testing.T) {
	driver := t.TempDir()
	for folder, text := range map[string]string{
		"0000:01:00.0": "Model: \t\t Tesla\nGPU UUID: \t GPU-a\nDevice Minor: \t 3\n", "0000:02:00.0": "GPU UUID: \t GPU-b\nDevice Minor: \t 0\n",
	} {
		dir := filepath.Join(driver, folder)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "information"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	gpu := func(id, uuid string) train.Device {
		return train.Device{ID: train.DeviceID("gpu:" + id), Kind: train.KindGPU, UUID: uuid}
	}
	for name, c := range map[string]struct {
		devices []train.Device
		want    []string
	}{
		"one":        {[]train.Device{gpu("0", "GPU-a")}, []string{"nvidia3"}},
		"two":        {[]train.Device{gpu("0", "GPU-a"), gpu("1", "GPU-b")}, []string{"nvidia3", "nvidia0"}},
		"a part":     {[]train.Device{gpu("0:1", "MIG-x")}, []string{"nvidia[0-9]*"}},
		"processors": {[]train.Device{{ID: "cpu:0", Kind: train.KindCPU}}, nil},
		"on paper":   {[]train.Device{{ID: "gpu:0", Kind: train.KindGPU, Simulated: true, UUID: "GPU-a"}}, nil},
	} {
		got := devicesOf(launch.Setting{Places: []launch.Place{{Devices: c.devices}}}, driver)
		if own := got[len(shownDevices()):]; !slices.Equal(own, c.want) {
			t.Errorf("%s: %v, want %v", name, own, c.want)
		}
	}
}
