package server

import (
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/test/influxd"
)

func TestInfluxSetup(t *testing.T) {
	server := influxd.Start(t)
	run := func(args ...string) (code int, out, told string) {
		var stdout, stderr strings.Builder
		code = Main(append([]string{"switchyard", "influx", "setup", "--influx-url", server.URL}, args...), &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	for range 2 {
		code, out, told := run("--influx-pipetune", "energy", "--influx-ground-truth", "ground_truth", "--wait", "1m")
		if code != exit.OK || !strings.Contains(out, `CREATE DATABASE "energy"`) || !strings.Contains(out, `CREATE DATABASE "ground_truth"`) || !strings.Contains(out, "InfluxDB 1.8.10 is ready") {
			t.Fatalf("exit code %d: %s%s", code, out, told)
		}
	}
	server.Kill()
	if code, _, told := run(); code != exit.Unreachable || !strings.Contains(told, server.URL) {
		t.Errorf("no server: exit code %d, %q", code, told)
	}
}
