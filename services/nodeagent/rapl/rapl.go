// Package rapl reads the energy counters of processors and memory that Linux shows below /sys/class/powercap.
//
// Zones nest: psys (the whole platform) holds packages, and a package holds its cores, the uncore and, on some
// machines, the memory controller. A zone must not be added to a zone that contains it, so only the packages ("cpu")
// and the memory ("dram") are read. The same zone may be shown twice, by registers and by memory-mapped I/O; it is
// read once.
package rapl

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/meter"
)

// mostPower is more than any package draws: a difference that would need more is a counter reset and no wrap.
const mostPower = 5000 * unit.Watt

// Counters are the zones to read.
type Counters struct {
	root  fs.FS
	zones []*zone
	// trouble says why the zones are not usable.
	trouble error
}

type zone struct {
	folder    string
	name      string
	component string
	size      unit.Energy // the counter wraps at this value
	last      unit.Energy
	seen      bool
}

// Open finds the zones in root; it returns nil if there are none.
func Open(root fs.FS) (*Counters, error) {
	folders, err := fs.ReadDir(root, ".")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list power zones: %w", err)
	}
	c := &Counters{root: root}
	taken := map[string]bool{}
	// Registers before memory-mapped I/O; a package comes before its parts by its name.
	slices.SortStableFunc(folders, func(a, b fs.DirEntry) int {
		return strings.Count(a.Name(), "mmio") - strings.Count(b.Name(), "mmio")
	})
	for _, folder := range folders {
		z, identity, err := openZone(root, folder.Name())
		if err != nil {
			c.trouble = errors.Join(c.trouble, err)
			continue
		}
		if z == nil || taken[identity] {
			continue
		}
		taken[identity] = true
		c.zones = append(c.zones, z)
	}
	if len(c.zones) == 0 && c.trouble == nil {
		return nil, nil
	}
	return c, nil
}

// openZone reads what does not change of a zone; it returns nil for a zone that is part of another one, or holds
// others.
func openZone(root fs.FS, folder string) (*zone, string, error) {
	name, err := readWord(root, path.Join(folder, "name"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil // the control type itself, which is no zone
	}
	if err != nil {
		return nil, "", fmt.Errorf("read power zone %s: %w", folder, err)
	}
	component, identity := "", name
	switch {
	case strings.HasPrefix(name, "package-"):
		component = event.ComponentCPU
	case name == "dram":
		// Every package has a zone of that name; the package distinguishes them.
		identity = folder
		if at := strings.LastIndex(folder, ":"); at >= 0 {
			if owner, err := readWord(root, path.Join(folder[:at], "name")); err == nil {
				identity = owner + "/dram"
			}
		}
		component = event.ComponentDRAM
	default:
		return nil, "", nil
	}
	size, err := readNumber(root, path.Join(folder, "max_energy_range_uj"))
	if err != nil {
		return nil, "", fmt.Errorf("read power zone %s (%s): %w", folder, name, err)
	}
	return &zone{folder: folder, name: name, component: component, size: unit.Energy(size)}, identity, nil
}

// Method is the meter's name.
func (c *Counters) Method() string { return "rapl" }

// Read returns the energy of each component since the last call, d ago; nil after the first call and if there is
// nothing to read. A zone that vanished or must not be read is an error, because the sum of the others would be too
// small.
func (c *Counters) Read(d time.Duration) ([]meter.Spent, error) {
	if len(c.zones) == 0 {
		return nil, c.trouble
	}
	c.trouble = nil
	sums, first := map[string]unit.Energy{}, false
	for _, z := range c.zones {
		now, err := readNumber(c.root, path.Join(z.folder, "energy_uj"))
		if err != nil {
			z.seen = false
			c.trouble = errors.Join(c.trouble, fmt.Errorf("read power zone %s (%s): %w", z.folder, z.name, err))
			continue
		}
		if !z.seen {
			first = true
		}
		sums[z.component] += difference(z.last, unit.Energy(now), z.size, d)
		z.last, z.seen = unit.Energy(now), true
	}
	if c.trouble != nil || first || d <= 0 {
		return nil, c.trouble
	}
	var spent []meter.Spent
	for _, component := range []string{event.ComponentCPU, event.ComponentDRAM} {
		if e, ok := sums[component]; ok {
			spent = append(spent, meter.Spent{Component: component, Energy: e})
		}
	}
	return spent, nil
}

// difference returns the difference of two readings of a counter that wraps at size.
func difference(last, now, size unit.Energy, d time.Duration) unit.Energy {
	delta := now - last
	if delta >= 0 {
		return delta
	}
	if wrapped := delta + size; wrapped >= 0 && wrapped <= mostPower.Over(d) {
		return wrapped
	}
	return delta
}

func readWord(root fs.FS, name string) (string, error) {
	data, err := fs.ReadFile(root, name)
	return strings.TrimSpace(string(data)), err
}

func readNumber(root fs.FS, name string) (int64, error) {
	word, err := readWord(root, name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", name, err)
	}
	return n, nil
}
