// Package net tests the search for lossy links on a network of namespaces: 4 leaves, 2 spines and 8 hosts on one
// machine, joined by the kernel's own multipath routing, with real agents on the hosts.
package net

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

const (
	leaves = 4
	spines = 2
	hosts  = 8
	// insideEnv is set in the process with its own network.
	insideEnv = "NET_LAB_INSIDE"
	// controlAddress is the address of the bus for all hosts, on a network separate from the probed one.
	controlAddress = "192.168.255.1"
)

// TestMain runs the tests again in a process with its own network and mounts, so that nothing of them remains.
func TestMain(m *testing.M) {
	if role, at, crowded := strings.Cut(os.Getenv(crowdEnv), " "); crowded {
		fmt.Fprintln(os.Stderr, crowd(role, at))
		os.Exit(1)
	}
	if os.Getenv(insideEnv) != "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"=yes")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	}
	// The machine allows no namespace: each test says so.
	os.Exit(m.Run())
}

// lab is the network.
type lab struct {
	t *testing.T
	// dropper drops incoming packets with a probability.
	dropper func(namespace, device string, probability float64) string
}

// newLab builds the network. A machine that cannot have it fails the tests: `make e2e-net` is never green for nothing.
func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Getenv("NET_LAB") == "" {
		t.Skip("set NET_LAB (make e2e-net) to build a network of namespaces; it takes minutes and root")
	}
	if os.Getenv(insideEnv) == "" || os.Getuid() != 0 {
		t.Fatal("this machine gives no network namespace: root and CAP_SYS_ADMIN are needed")
	}
	for tool, of := range map[string]string{"ip": "iproute2", "sysctl": "procps", "mount": "mount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s is not installed (Debian: apt-get install %s)", tool, of)
		}
	}
	l := &lab{t: t}
	if err := shell("mount --make-rprivate / && mkdir -p /run/netns && mount -t tmpfs none /run/netns && ip link set lo up"); err != nil {
		t.Fatalf("this machine gives no mounts of one's own: %v", err)
	}
	if err := shell(fabricScript()); err != nil {
		t.Fatalf("build the network: %v", err)
	}
	t.Cleanup(func() {
		if err := shell("umount -l /run/netns; ip link delete masters"); err != nil {
			t.Error(err)
		}
	})
	l.findDropper()
	return l
}

// shell runs a script.
func shell(script string) error {
	cmd := exec.Command("sh", "-e")
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// inIPv6 returns the address of the same interface.
func inIPv6(address string) string {
	parts := strings.Split(address, ".")
	return fmt.Sprintf("fd00:%s:%s::%s", parts[1], parts[2], parts[3])
}

// controlOf returns a host's address in the control network, hostAddress that in the probed network.
func controlOf(host int) string   { return fmt.Sprintf("192.168.255.%d", 10+host) }
func hostAddress(host int) string { return fmt.Sprintf("10.1.%d.2", host) }

// leafDown, leafUp and spineIn return the other addresses at which packets enter a device.
func leafDown(host int) string         { return fmt.Sprintf("10.1.%d.1", host) }
func leafUp(leaf, spine int) string    { return fmt.Sprintf("10.2.%d.1", leaf*spines+spine) }
func spineIn(leaf, spine int) string   { return fmt.Sprintf("10.2.%d.2", leaf*spines+spine) }
func leafOf(host int) int              { return host * leaves / hosts }
func device(kind string, n int) string { return fmt.Sprintf("%s%d", kind, n) }

// fabricScript returns the commands that build the network. Routers hash addresses and ports over their uplinks, and
// when they drop a packet report the interface it came in at. For IPv6 packets they cannot, and are silent.
func fabricScript() string {
	var s strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&s, format+"\n", args...) }
	namespace := func(name string) {
		say("ip netns add %s; ip -n %s link set lo up", name, name)
		say("ip netns exec %s sysctl -qw net.ipv4.ip_forward=1 net.ipv4.fib_multipath_hash_policy=1 net.ipv4.icmp_ratelimit=0 net.ipv4.icmp_errors_use_inbound_ifaddr=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0",
			name)
		say("ip netns exec %s sysctl -qw net.ipv4.icmp_msgs_per_sec=100000 || true", name)
		say("ip netns exec %s sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.forwarding=1 net.ipv6.fib_multipath_hash_policy=1 || true",
			name)
	}
	cable := func(a, deviceA, addressA, b, deviceB, addressB string) {
		say("ip link add %s netns %s type veth peer name %s netns %s", deviceA, a, deviceB, b)
		say("ip -n %s addr add %s/24 dev %s; ip -n %s link set %s up", a, addressA, deviceA, a, deviceA)
		say("ip -n %s addr add %s/24 dev %s; ip -n %s link set %s up", b, addressB, deviceB, b, deviceB)
		say("ip -n %s addr add %s/64 dev %s nodad || true; ip -n %s addr add %s/64 dev %s nodad || true", a,
			inIPv6(addressA), deviceA, b, inIPv6(addressB), deviceB)
	}
	say("ip link add masters type bridge; ip addr add %s/24 dev masters; ip link set masters up", controlAddress)
	for i := range leaves {
		namespace(device("leaf", i))
	}
	for i := range spines {
		namespace(device("spine", i))
	}
	for h := range hosts {
		host, leaf := device("host", h), device("leaf", leafOf(h))
		namespace(host)
		cable(host, "uplink", hostAddress(h), leaf, host, leafDown(h))
		say("ip -n %s route add 10.0.0.0/8 via %s", host, leafDown(h))
		say("ip -n %s -6 route add fd00::/16 via %s || true", host, inIPv6(leafDown(h)))
		say("ip link add m%d type veth peer name masters netns %s; ip link set m%d master masters up", h, host, h)
		say("ip -n %s addr add %s/24 dev masters; ip -n %s link set masters up", host, controlOf(h), host)
	}
	for l := range leaves {
		for p := range spines {
			cable(device("leaf", l), device("spine", p), leafUp(l, p), device("spine", p), device("leaf", l), spineIn(l, p))
		}
	}
	for h := range hosts {
		for p := range spines {
			say("ip -n spine%d route add 10.1.%d.0/24 via %s", p, h, leafUp(leafOf(h), p))
			say("ip -n spine%d -6 route add fd00:1:%d::/64 via %s || true", p, h, inIPv6(leafUp(leafOf(h), p)))
		}
		for l := range leaves {
			if l != leafOf(h) {
				say("ip -n leaf%d route add 10.1.%d.0/24 nexthop via %s nexthop via %s", l, h, spineIn(l, 0), spineIn(l, 1))
				say("ip -n leaf%d -6 route add fd00:1:%d::/64 nexthop via %s nexthop via %s || true", l, h,
					inIPv6(spineIn(l, 0)), inIPv6(spineIn(l, 1)))
			}
		}
	}
	return s.String()
}

// findDropper finds a way to drop packets at random here, since kernels differ in their modules.
func (l *lab) findDropper() {
	nft := func(namespace, device string, p float64) string {
		return fmt.Sprintf("ip netns exec %s nft 'add table inet lab; add chain inet lab in { type filter hook prerouting priority -300; }; "+
			"add rule inet lab in iifname \"%s\" meta l4proto udp numgen random mod 10000 <= %d drop'", namespace, device, int(p*10_000)-1)
	}
	iptables := func(namespace, device string, p float64) string {
		return fmt.Sprintf("ip netns exec %s iptables-legacy -t raw -A PREROUTING -i %s -p udp -m statistic --mode random --probability %g -j DROP",
			namespace, device, p)
	}
	for _, dropper := range []func(string, string, float64) string{nft, iptables} {
		l.dropper = dropper
		if shell(dropper("spine0", "leaf0", 0.5)) == nil {
			l.heal()
			return
		}
	}
	l.t.Fatal("neither nft nor iptables-legacy can drop packets at random here (Debian: apt-get install nftables)")
}

// link is one direction of a cable.
type link struct {
	namespace, device string
	// enters is the address of the interface that it leads to; agents know the link by it.
	enters string
}

// id returns Switchyard's name of the link.
func (k link) id() string { return "to-" + strings.ReplaceAll(k.enters, ".", "-") }

// links returns all directions of all cables.
func links() []link {
	var all []link
	for h := range hosts {
		leaf := device("leaf", leafOf(h))
		all = append(all, link{leaf, device("host", h), leafDown(h)}, link{device("host", h), "uplink", hostAddress(h)})
	}
	for i := range leaves {
		for p := range spines {
			all = append(all,
				link{device("spine", p), device("leaf", i), spineIn(i, p)},
				link{device("leaf", i), device("spine", p), leafUp(i, p)})
		}
	}
	return all
}

// lose makes a link lose a part of its packets.
func (l *lab) lose(k link, part float64) {
	l.t.Helper()
	if err := shell(l.dropper(k.namespace, k.device, part)); err != nil {
		l.t.Fatal(err)
	}
}

// heal ends all losses.
func (l *lab) heal() {
	var s strings.Builder
	for _, kind := range []struct {
		name string
		n    int
	}{{"leaf", leaves}, {"spine", spines}, {"host", hosts}} {
		for i := range kind.n {
			fmt.Fprintf(&s, "ip netns exec %s%d nft 'delete table inet lab' 2>/dev/null || true\n", kind.name, i)
			fmt.Fprintf(&s, "ip netns exec %s%d iptables-legacy -t raw -F 2>/dev/null || true\n", kind.name, i)
		}
	}
	if err := shell(s.String()); err != nil {
		l.t.Error(err)
	}
}
