package powerlimit_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
	"github.com/switchyard-dl/switchyard/services/nodeagent/powerlimit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/simgpu"
)

// victim is the variable that makes this program an agent that is going to be killed.
const victim = "POWERLIMIT_TEST_VICTIM"

func TestMain(m *testing.M) {
	if dir := os.Getenv(victim); dir != "" {
		panic(limitForever(dir))
	}
	os.Exit(m.Run())
}

const (
	first  = train.DeviceID("gpu:0")
	second = train.DeviceID("gpu:1")
)

func open(dir string) (*powerlimit.Controller, simgpu.Reader, error) {
	gpus := simgpu.Reader{Node: "n", Count: 2, Sick: filepath.Join(dir, "sick"), Limits: filepath.Join(dir, "limits")}
	k, err := powerlimit.Open(filepath.Join(dir, "before"), gpus)
	return k, gpus, err
}

// limitForever sets limits and restores them, and prints each change.
func limitForever(dir string) error {
	k, gpus, err := open(dir)
	if err != nil {
		return err
	}
	devices, err := gpus.Devices()
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		wanted := map[train.DeviceID]unit.Power{}
		if i%3 != 2 {
			wanted[first] = unit.Watts(float64(150 + i%100))
		}
		if i%2 == 0 {
			wanted[second] = 120 * unit.Watt
		}
		if err := k.Apply(devices, wanted); err != nil {
			return err
		}
		fmt.Println(i)
	}
}

// TestAKilledAgentRestoresLimits kills an agent in the middle of its work, again and again. The next one restores
// what the operator had set.
func TestAKilledAgentRestoresLimits(t *testing.T) {
	dir := t.TempDir()
	_, gpus, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	devices, err := gpus.Devices()
	if err != nil {
		t.Fatal(err)
	}
	operators := 280 * unit.Watt
	if err := gpus.SetPowerLimit(1, operators); err != nil {
		t.Fatal(err)
	}
	dice, caught := rand.New(rand.NewPCG(1, 2)), 0
	for range 12 {
		killAfter(t, dir, 1+dice.IntN(20))
		if limit(t, gpus, 0) != 300*unit.Watt || limit(t, gpus, 1) != operators {
			caught++
		}
		k, _, err := open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Apply(devices, nil); err != nil {
			t.Fatal(err)
		}
		if a, b := limit(t, gpus, 0), limit(t, gpus, 1); a != 300*unit.Watt || b != operators {
			t.Fatalf("restored are %g and %g W", a.Watts(), b.Watts())
		}
	}
	if caught < 3 {
		t.Errorf("only %d agents were killed with a limit set", caught)
	}
}

// killAfter kills an agent after it has changed limits a number of times.
func killAfter(t *testing.T, dir string, changes int) {
	t.Helper()
	agent := exec.CommandContext(t.Context(), os.Args[0])
	agent.Env = append(os.Environ(), victim+"="+dir)
	agent.Stderr = os.Stderr
	out, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for range changes {
		if !lines.Scan() {
			t.Fatal("the agent ended by itself")
		}
	}
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait()
}

func limit(t *testing.T, l gpu.Limiter, index int) unit.Power {
	t.Helper()
	limits, err := l.PowerLimits(index)
	if err != nil {
		t.Fatal(err)
	}
	return limits.Now
}

func TestLimitsStayWithinWhatWasThere(t *testing.T) {
	k, gpus, err := open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	devices, err := gpus.Devices()
	if err != nil {
		t.Fatal(err)
	}
	if err := gpus.SetPowerLimit(0, 250*unit.Watt); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ wanted, want unit.Power }{{200, 200}, {275, 250}, {20, 100}, {180, 180}, {0, 250}, {400, 250}, {0, 250}} {
		wanted := map[train.DeviceID]unit.Power{}
		if c.wanted > 0 {
			wanted[first] = c.wanted * unit.Watt
		}
		if err := k.Apply(devices, wanted); err != nil {
			t.Fatal(err)
		}
		if got := limit(t, gpus, 0); got != c.want*unit.Watt {
			t.Fatalf("wanted %d W, got %g W, want %d W", c.wanted, got.Watts(), c.want)
		}
	}
	if got := limit(t, gpus, 1); got != 300*unit.Watt {
		t.Errorf("the other device has %g W", got.Watts())
	}
}

// denied refuses to set anything.
type denied struct{ simgpu.Reader }

var errDenied = errors.New("no permission")

func (denied) SetPowerLimit(int, unit.Power) error { return errDenied }

func TestARefusalIsReportedAndHarmsNothing(t *testing.T) {
	dir := t.TempDir()
	_, gpus, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	devices, err := gpus.Devices()
	if err != nil {
		t.Fatal(err)
	}
	k, err := powerlimit.Open(filepath.Join(dir, "before"), denied{gpus})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Apply(devices, map[train.DeviceID]unit.Power{first: 200 * unit.Watt}); !errors.Is(err, errDenied) {
		t.Fatalf("error %v", err)
	}
	if err := k.Apply(devices, nil); err != nil {
		t.Fatalf("nothing was changed, and giving back fails: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "before"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := open(dir); err == nil {
		t.Error("limits that cannot be read are taken for none")
	}
}
