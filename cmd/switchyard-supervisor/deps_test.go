package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// TestTheSupervisorIsSmall looks at everything that the supervisor links, and at its size.
func TestTheSupervisorIsSmall(t *testing.T) {
	const own = "github.com/switchyard-dl/switchyard/"
	const local = own + "services/executor/local/"
	allowed := []string{
		own + "libs/disk", own + "libs/engine", own + "libs/installation", own + "libs/jobfiles", own + "libs/joblog", own + "libs/look", own + "libs/proc", own + "libs/rpc", own + "libs/tick", own + "libs/train", own + "libs/unit",
		own + "libs/upload", own + "libs/seal", own + "services/executor/launch", own + "cmd/switchyard-supervisor",
		// Not the back end, which is services/executor/local itself.
		local + "attempt", local + "cgroup", local + "horovod", local + "launcher", local + "prepare", local + "proxy", local + "screen", local + "supervisor", local + "trash",
		"github.com/sourcegraph/conc", "golang.org/x/sys/unix",
		// What the launcher starts as a person fetches data with the rights of that person.
		own + "services/executor/staging",
		// The launcher checks admission's signatures: keys and curves, without the bus.
		"github.com/nats-io/nkeys", "golang.org/x/crypto", "golang.org/x/sys/cpu",
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	linked := strings.Fields(string(out))
	if len(linked) < len(allowed) {
		t.Fatalf("only %d packages: is this the whole supervisor?", len(linked))
	}
	for _, pkg := range linked {
		fits := false
		for _, a := range allowed {
			fits = fits || pkg == a || strings.HasPrefix(pkg, a+"/")
		}
		if !fits {
			t.Errorf("the supervisor links %s, which each running job would pay for", pkg)
		}
	}
	binary := filepath.Join(t.TempDir(), "switchyard-supervisor")
	// As a release is built, so that the size does not follow from the name of the folder it is built in.
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	const most = 8_500_000
	if info, err := os.Stat(binary); err != nil || info.Size() > most {
		t.Errorf("the supervisor has %d bytes, more than %d: %v", info.Size(), most, err)
	}
	if out, err := exec.CommandContext(t.Context(), binary, "version").Output(); err != nil || strings.TrimSpace(string(out)) != strconv.Itoa(attempt.Version) {
		t.Errorf("version %q, %v", out, err)
	}
}
