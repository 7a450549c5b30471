// Package netrole runs the roles of deTector as processes that talk HTTP and need no bus: the controller with its
// lists, pingers, responders and the diagnoser. It is for clusters without the rest of Switchyard.
package netrole

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Config is deTector's config.xml, which despite its name is lines of key=value.
type Config struct {
	// Controller and Diagnoser are host:port.
	Controller, Diagnoser string
	PingerPort            int
	ResponderPort         int
	Servers               []netip.Addr
	// Interval is the time between two probes of a pinger, Cycle how often lists are asked for.
	Interval, Cycle time.Duration
	// KeyFile is the file in which the controller keeps the key of probes, PathsFile that of their paths. config.xml
	// does not set them.
	KeyFile   string `json:"-"`
	PathsFile string `json:"-"`
}

// ParseConfig reads a file; the error names every line that is wrong.
func ParseConfig(text string) (Config, error) {
	c := Config{PingerPort: 7071, ResponderPort: 7070, Interval: 100 * time.Millisecond, Cycle: time.Minute}
	var errs []error
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "<") || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		if err := c.set(strings.TrimSpace(key), strings.Trim(strings.TrimSpace(value), `'"`)); err != nil {
			errs = append(errs, fmt.Errorf("%.80q: %w", line, err))
		}
	}
	if c.Controller == "" || len(c.Servers) < 2 {
		errs = append(errs, errors.New("want a controller and at least two servers"))
	}
	c.Diagnoser = cmp.Or(c.Diagnoser, c.Controller)
	return c, errors.Join(errs...)
}

func (c *Config) set(key, value string) (err error) {
	switch {
	case key == "controller":
		c.Controller = value
		_, _, err = net.SplitHostPort(value)
	case key == "diagnoser":
		c.Diagnoser = value
		_, _, err = net.SplitHostPort(value)
	case key == "pinger_listen_port":
		c.PingerPort, err = parsePort(value)
	case key == "responder_listen_port":
		c.ResponderPort, err = parsePort(value)
	case key == "interval":
		c.Interval, err = parseSeconds(value)
	case key == "time_cyc":
		c.Cycle, err = parseSeconds(value)
	case key == "sys_choice":
		if value != "1" {
			err = errors.New("only 1, deTector, is known")
		}
	case strings.HasPrefix(key, "server_"):
		var server netip.Addr
		server, err = netip.ParseAddr(value)
		c.Servers = append(c.Servers, server)
	default:
		err = errors.New("no such setting")
	}
	return err
}

func parsePort(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	return int(n), err
}

func parseSeconds(s string) (time.Duration, error) {
	seconds, err := strconv.ParseFloat(s, 64)
	if err == nil && !(seconds >= 0.001 && seconds <= 86_400) {
		err = errors.New("want 0.001 to 86400 seconds")
	}
	return time.Duration(seconds * float64(time.Second)), err
}

// nodeOf names a server.
func nodeOf(server netip.Addr) train.NodeID {
	return train.NodeID(strings.NewReplacer(".", "-", ":", "-").Replace(server.String()))
}

// names returns the names of the servers.
func (c *Config) names() map[train.NodeID]bool {
	names := map[train.NodeID]bool{}
	for _, s := range c.Servers {
		names[nodeOf(s)] = true
	}
	return names
}

// nodes are the servers as the planner of lists knows nodes.
func (c *Config) nodes() []train.Node {
	var all []train.Node
	for _, s := range c.Servers {
		all = append(all, train.Node{ID: nodeOf(s), Probes: []string{c.responder(s).String()}})
	}
	return all
}

// responder is where a server answers probes.
func (c *Config) responder(server netip.Addr) netip.AddrPort {
	return netip.AddrPortFrom(server, uint16(c.ResponderPort))
}
