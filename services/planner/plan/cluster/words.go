package cluster

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Devices counts devices in words.
func Devices(n int) string {
	if n == 1 {
		return "1 device"
	}
	return fmt.Sprintf("%d devices", n)
}

// Cores counts processor cores in words.
func Cores(n int) string {
	if n == 1 {
		return "1 core"
	}
	return fmt.Sprintf("%d cores", n)
}

// ServerWords is a parameter server of a gang in words, with what it takes up.
func ServerWords(g *Gang) string {
	words := "1 parameter server of " + Cores(g.Servers.Cores)
	if g.Servers.MemoryMiB > 0 {
		words += " and " + (unit.Bytes(g.Servers.MemoryMiB) * unit.MiB).String()
	}
	return words
}

// Amount counts what a gang has in words: devices, and parameter servers if it has some.
func Amount(p Placement) string {
	switch n := p.Servers(); n {
	case 0:
		return Devices(p.Size())
	case 1:
		return Devices(p.Size()) + " and 1 parameter server"
	default:
		return fmt.Sprintf("%s and %d parameter servers", Devices(p.Size()), n)
	}
}

// Where names a placement in words.
func (s *Snapshot) Where(p Placement) string {
	if len(p.Parts) > 1 {
		return fmt.Sprintf("%s on %d nodes", Amount(p), len(p.Parts))
	}
	word := " of node "
	if p.Servers() > 0 {
		word = " on node "
	}
	return Amount(p) + word + string(s.Nodes[p.Parts[0].Node].ID)
}

// Names lists at most three gangs with their priorities.
func Names(gangs []*Gang) string {
	const most = 3
	names := make([]string, 0, most)
	for _, g := range gangs[:min(len(gangs), most)] {
		names = append(names, string(g.ID)+" (priority "+strconv.Itoa(g.Priority)+")")
	}
	words := strings.Join(names, ", ")
	if more := len(gangs) - most; more > 0 {
		words += " and " + strconv.Itoa(more) + " more"
	}
	return words
}
