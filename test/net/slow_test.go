package net

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

const (
	// crowdEnv gives a process of the test its role: "send ADDRESS" or "echo ADDRESS".
	crowdEnv  = "NET_LAB_CROWD"
	crowdPort = "9"
	// crowdPackets of crowdBytes are always in flight. At crowdRate, a megabyte per second, every packet on the link
	// waits about 12 ms.
	crowdPackets = 8
	crowdBytes   = 1472
	crowdRate    = "8mbit"
	// learnedWithin is the time in which the profiler learns the usual delays.
	learnedWithin = 90 * time.Second
)

// crowd keeps a queue full without drops: it sends a packet for each that arrives.
func crowd(role, at string) error {
	packet := make([]byte, crowdBytes)
	if role == "echo" {
		conn, err := net.ListenPacket("udp", at)
		for err == nil {
			var from net.Addr
			if _, from, err = conn.ReadFrom(packet); err == nil {
				_, err = conn.WriteTo(packet[:1], from)
			}
		}
		return err
	}
	conn, err := net.Dial("udp", at)
	if err != nil {
		return err
	}
	for {
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		more := 1
		if _, err := conn.Read(make([]byte, 1)); err != nil { // the other end is not there yet, or no longer
			more = crowdPackets
		}
		for range more {
			_, _ = conn.Write(packet)
		}
	}
}

// begin returns the end of the cable from which packets enter a link.
func (k link) begin() (namespace, device string) {
	switch {
	case k.device == "uplink":
		var h int
		_, _ = fmt.Sscanf(k.namespace, "host%d", &h)
		return fmt.Sprintf("leaf%d", leafOf(h)), k.namespace
	case strings.HasPrefix(k.device, "host"):
		return k.device, "uplink"
	}
	return k.device, k.namespace
}

// slowDown makes packets wait before a link until the returned function is called.
func (l *lab) slowDown(k link) func() {
	l.t.Helper()
	namespace, device := k.begin()
	if err := shell(fmt.Sprintf("ip netns exec %s tc qdisc add dev %s root tbf rate %s burst 4kb limit 1mb", namespace, device, crowdRate)); err != nil {
		l.t.Fatalf("this kernel gives no queues (tc tbf): %v", err)
	}
	var stops []func()
	for role, where := range map[string]string{"echo": k.namespace, "send": namespace} {
		cmd := exec.Command("ip", "netns", "exec", where, os.Args[0])
		cmd.Env = append(os.Environ(), crowdEnv+"="+role+" "+net.JoinHostPort(k.enters, crowdPort))
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			l.t.Fatal(err)
		}
		stops = append(stops, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); _ = cmd.Wait() })
	}
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		for _, s := range stops {
			s()
		}
		if err := shell(fmt.Sprintf("ip netns exec %s tc qdisc del dev %s root", namespace, device)); err != nil {
			l.t.Error(err)
		}
	}
	return stop
}

func TestSlowLinksAreNamed(t *testing.T) {
	c := startCluster(t, setup{named: true})
	c.awaitPaths()
	seen := c.followTurns()
	<-time.After(learnedWithin)
	if stated := seen.take(); len(stated) > 0 {
		t.Errorf("in quiet: %v", stated)
	}
	all := links()
	// Into a leaf from a host, into a host, into a spine, into a leaf from a spine.
	for _, bad := range []link{all[0], all[5], all[2*hosts], all[2*hosts+3]} {
		t.Run(c.id(bad), func(t *testing.T) { c.nameSlow(t, seen, bad) })
	}
}

// A link that was slow before anybody probed it is named, and no other.
func TestALinkThatIsSlowFromTheStartIsNamed(t *testing.T) {
	bad := links()[2*hosts+3]
	c := startCluster(t, setup{named: true, slow: &bad})
	began, seen := time.Now(), c.followTurns()
	var reported []string
	until(t, learnedWithin+2*namedWithin, func() (bool, string) {
		reported = append(reported, seen.take()...)
		return len(reported) > 0, "nothing is named"
	})
	<-time.After(namedWithin)
	t.Logf("named %v after the start: %v", time.Since(began).Round(time.Second), reported)
	for _, turn := range append(reported, seen.take()...) {
		if !strings.HasPrefix(turn, c.id(bad)+" "+event.FactDegraded) || !strings.Contains(turn, string(train.LinkIsSlow)) {
			t.Errorf("published %s", turn)
		}
	}
}

// nameSlow makes packets wait before a link until it, and no other, is named, and then until it has recovered.
func (c *cluster) nameSlow(t *testing.T, seen *turns, bad link) {
	began := time.Now()
	stop := c.slowDown(bad)
	defer stop()
	var reported []string
	await := func(fact string) {
		until(t, 2*namedWithin, func() (bool, string) {
			reported = append(reported, seen.take()...)
			return slices.ContainsFunc(reported, func(turn string) bool { return strings.HasPrefix(turn, c.id(bad)+" "+fact) }), fmt.Sprint(reported)
		})
	}
	await(event.FactDegraded)
	t.Logf("named after %v: %v", time.Since(began).Round(100*time.Millisecond), reported)
	stop()
	await(event.FactRecovered)
	for _, turn := range reported {
		if !strings.HasPrefix(turn, c.id(bad)+" ") || !strings.Contains(turn, string(train.LinkIsSlow)) {
			t.Errorf("published %s", turn)
		}
	}
}
