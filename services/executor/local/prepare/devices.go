package prepare

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// shownDevices are the entries of /dev that every job of a person sees. It has a /dev/shm of its own.
func shownDevices() []string {
	return []string{
		"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "fd", "stdin", "stdout", "stderr", "infiniband",
		"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps",
	}
}

// devicesOf returns the entries of /dev that the processes of a job see: of the devices of GPUs, those of its own. The
// driver lists its GPUs in a folder. If it does not know one of the job's, such as a part of a GPU, all are shown.
func devicesOf(s launch.Setting, driver string) []string {
	shown := shownDevices()
	if !s.OnGPUs() || len(s.Places) == 0 {
		return shown
	}
	for _, d := range s.Places[0].GPUs() {
		name := deviceNode(d, driver)
		if name == "" {
			return append(shown, "nvidia[0-9]*")
		}
		shown = append(shown, name)
	}
	return shown
}

// driverFolder is where NVIDIA's driver lists its GPUs.
const driverFolder = "/proc/driver/nvidia/gpus"

// deviceNode returns the entry of /dev of a GPU. Its number is the driver's, and not always the index.
func deviceNode(d train.Device, driver string) string {
	files, _ := filepath.Glob(filepath.Join(driver, "*", "information"))
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		said := map[string]string{}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, ":")
			said[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
		if d.UUID != "" && said["GPU UUID"] == d.UUID && said["Device Minor"] != "" {
			return "nvidia" + said["Device Minor"]
		}
	}
	return ""
}
