package doctor

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/disk"
	"github.com/switchyard-dl/switchyard/libs/perf"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// mayMount is the capability with which root makes mount namespaces.
const mayMount = 1 << unix.CAP_SYS_ADMIN

// surveyMemory returns the size of the main memory, or 0.
func surveyMemory() unit.Bytes {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return unit.Bytes(info.Totalram) * unit.Bytes(info.Unit)
}

// surveyPerf finds the performance events that can be counted here, by counting them.
func surveyPerf(s *survey) {
	counters, err := perf.Open()
	if err != nil {
		s.PerfTrouble = render.ClipText(strings.Split(err.Error(), "\n")[0], 160)
		return
	}
	defer counters.Close()
	s.PerfEvents, s.PerfHardware = len(counters.Names()), counters.Hardware()
}

// surveyQuotas looks at the folder of the launcher, on a server for several people.
func surveyQuotas(dir string) (jobs, trouble string) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", ""
	}
	if err := disk.Quotas(dir); err != nil {
		return dir, err.Error()
	}
	return dir, ""
}
