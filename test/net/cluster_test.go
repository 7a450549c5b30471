package net

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/test/programs"
)

// cluster is the part of Switchyard that the lab needs, as separate processes: an agent on each host, and the bus, the
// planner and the profiler on the control host.
type cluster struct {
	*lab
	dir string
	url string
	bus *bus.Bus
	// processes holds the started processes, by name.
	processes map[string]*os.Process
	// named is set if links have the names of a topology file, else those of addresses.
	named bool
}

// id returns the name of a link.
func (c *cluster) id(k link) string {
	if !c.named {
		return k.id()
	}
	from, _ := k.begin()
	return from + "=3E" + k.namespace
}

// topology is the network as an operator describes it. Leaves have no addresses: their place in a path identifies them.
func topology() string {
	var s strings.Builder
	s.WriteString("nodes:\n")
	for h := range hosts {
		fmt.Fprintf(&s, "  - {name: %s, rack: leaf%d}\n", device("host", h), leafOf(h))
	}
	s.WriteString("spines: [spine0, spine1]\naddresses:\n")
	for p := range spines {
		var inside []string
		for l := range leaves {
			inside = append(inside, spineIn(l, p))
		}
		fmt.Fprintf(&s, "  spine%d: [%s]\n", p, strings.Join(inside, ", "))
	}
	return s.String()
}

// probing returns the agents' settings for the probes each host sends per second: the service's own, or NET_RATE small
// ones, 40 of which cost no more bytes.
func (c *cluster) probing() []string {
	rate := number(c.t, "NET_RATE", 40)
	if rate == 10 {
		return nil
	}
	return []string{"--probe-rate", strconv.Itoa(rate), "--probe-bytes", "100", "--probe-budget-packets", strconv.Itoa(4 * rate), "--probe-budget-bytes", strconv.Itoa(max(12_500, 300*rate))}
}

func newCluster(t *testing.T) *cluster { return startCluster(t, setup{}) }

// setup is what differs between clusters: named gives the planner the topology, at other addresses of the same
// interfaces for probes. A link may be slow before anything starts.
type setup struct {
	named bool
	at    func(string) string
	slow  *link
}

func startCluster(t *testing.T, s setup) *cluster {
	t.Helper()
	l := newLab(t)
	if s.slow != nil {
		t.Cleanup(l.slowDown(*s.slow))
	}
	c := &cluster{lab: l, dir: t.TempDir(), processes: map[string]*os.Process{}, named: s.named}
	if err := programs.Build(c.dir, "services/planner/cmd/planner", "services/profiler/cmd/profiler", "services/admission/cmd/admission", "services/nodeagent/cmd/nodeagent"); err != nil {
		l.t.Fatal(err)
	}
	server, err := busserver.Start(busserver.Options{Open: true, Host: "0.0.0.0", Dir: filepath.Join(c.dir, "bus")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	c.url = strings.Replace(server.URL(), "0.0.0.0", controlAddress, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if c.bus, err = bus.Connect(ctx, bus.Config{URL: c.url, Name: "test"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.bus.Close)
	if err := c.bus.Ensure(ctx); err != nil {
		t.Fatal(err)
	}
	c.start("admission", filepath.Join(c.dir, "admission"))
	c.start("profiler", filepath.Join(c.dir, "profiler"))
	flags := []string{filepath.Join(c.dir, "planner")}
	if s.named {
		file := filepath.Join(c.dir, "topology.yaml")
		if err := os.WriteFile(file, []byte(topology()), 0o600); err != nil {
			t.Fatal(err)
		}
		flags = append(flags, "--topology", file)
	}
	c.start("planner", flags...)
	for h := range hosts {
		address := hostAddress(h)
		if s.at != nil {
			address = s.at(address)
		}
		c.startAgent(h, address)
	}
	return c
}

// startAgent runs the agent of a host. Its jobs would be pods, since only those span nodes; there is no kubelet, so
// none of them starts.
func (c *cluster) startAgent(h int, address string) {
	c.t.Helper()
	host := device("host", h)
	kubelet, labels := filepath.Join(c.dir, host), filepath.Join(c.dir, host+".labels")
	if err := os.WriteFile(labels, fmt.Appendf(nil, "switchyard.dev/rack=\"leaf%d\"\n", leafOf(h)), 0o600); err != nil {
		c.t.Fatal(err)
	}
	for _, dir := range []string{"plugins_registry", "logs"} {
		if err := os.MkdirAll(filepath.Join(kubelet, dir), 0o700); err != nil {
			c.t.Fatal(err)
		}
	}
	args := []string{
		"ip", "netns", "exec", host, filepath.Join(c.dir, "nodeagent"), "--probe-listen", net.JoinHostPort(address, "7070"),
		"--kubernetes-node", host, "--node-labels", labels, "--kubelet-root", kubelet, "--pod-logs", filepath.Join(kubelet, "logs"),
		"--job-api", controlOf(h) + ":0", "--sim-gpus", strconv.Itoa(gpus), "--meter-interval", "30s", "--perf-events", "off",
	}
	c.start(host, append(args, c.probing()...)...)
}

// start runs a process until the test ends.
func (c *cluster) start(name string, args ...string) {
	c.t.Helper()
	log, err := os.Create(filepath.Join(c.dir, name+".log"))
	if err != nil {
		c.t.Fatal(err)
	}
	data := filepath.Join(c.dir, "data-"+name)
	words := settings.Words(args[1:]...)
	cmd := exec.Command(args[0], append(words.Flags, "--nats", c.url, "--data-dir", data, "--http", "127.0.0.1:0")...)
	cmd.Env = append(os.Environ(), words.Environ...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.processes[name] = cmd.Process
	c.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		_ = log.Close()
		if c.t.Failed() {
			stated, _ := os.ReadFile(log.Name())
			c.t.Logf("%s:\n%s", name, stated[max(0, len(stated)-2000):])
		}
	})
}
