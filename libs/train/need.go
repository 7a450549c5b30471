package train

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// DeviceNeed is what a job asks of each of its devices.
type DeviceNeed struct {
	// Kind and Models are empty if the job runs on any.
	Kind   DeviceKind
	Models []string
	Memory unit.Bytes
}

// DeviceNeed returns what the job asks of each of its devices.
func (s Spec) DeviceNeed() DeviceNeed {
	need := DeviceNeed{Kind: s.Device, Memory: s.EstimatedMemory()}
	for model := range strings.SplitSeq(s.GPU, "|") {
		if model = strings.TrimSpace(model); model != "" {
			need.Models = append(need.Models, model)
		}
	}
	return need
}

// DeviceBounds returns the least and the most devices of the job.
func (s Spec) DeviceBounds() (least, most int) {
	least = max(s.MinDevices, 1)
	if s.Strategy == StrategyNone {
		return least, least
	}
	return least, max(s.MaxDevices, least)
}

// Chosen says whether the need is more than an amount of memory.
func (n DeviceNeed) Chosen() bool { return n.Kind != "" || len(n.Models) > 0 }

// Suits says whether all devices of a node have the kind and a model that the job asks for. Their memory is compared
// apart.
func (n DeviceNeed) Suits(node *Node) bool {
	return !n.Chosen() || !slices.ContainsFunc(node.Devices, func(d Device) bool { return !n.suits(&d) })
}

// Of returns the node with only those of its devices that have the kind and a model that the job asks for.
func (n DeviceNeed) Of(node Node) Node {
	if !n.Suits(&node) {
		node.Devices = slices.DeleteFunc(slices.Clone(node.Devices), func(d Device) bool { return !n.suits(&d) })
	}
	return node
}

// Fits says whether a device is what the job asks for, its memory included.
func (n DeviceNeed) Fits(d *Device) bool {
	return n.suits(d) && (d.Memory == 0 || d.Memory >= n.Memory)
}

// Divides says whether the job can have some devices of a node and not others.
func (n DeviceNeed) Divides(node *Node) bool {
	some, all := false, true
	for i := range node.Devices {
		fits := n.Fits(&node.Devices[i])
		some, all = some || fits, all && fits
	}
	return some && !all
}

func (n DeviceNeed) suits(d *Device) bool {
	return (n.Kind == "" || n.Kind == d.ID.Kind()) && (len(n.Models) == 0 || slices.ContainsFunc(n.Models, func(m string) bool { return isModel(d.Model, m) }))
}

// isModel says whether a name of a product holds the words of a model, without regard to case, spaces and hyphens: A100
// is in "NVIDIA A100-SXM4-40GB", and A10 is not.
func isModel(product, model string) bool {
	split := func(s string) []string {
		return strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	}
	words, want := split(product), strings.Join(split(model), "")
	for i := range words {
		for end := i + 1; end <= len(words); end++ {
			if strings.Join(words[i:end], "") == want {
				return true
			}
		}
	}
	return false
}

// Count says in words how many devices the job needs, e.g. "2 GPUs (H100 or A100) with 20 GiB each".
func (n DeviceNeed) Count(devices int) string {
	words := fmt.Sprintf("%d %s", devices, n.kind())
	if devices != 1 {
		words += "s"
	}
	if len(n.Models) > 0 {
		words += " (" + strings.Join(n.Models, " or ") + ")"
	}
	if n.Memory > 0 && n.Kind == KindGPU {
		words += " with " + n.Memory.Exact()
		if devices != 1 {
			words += " each"
		}
	}
	return words
}

// Lacks says in words what none of the nodes offers; it is empty if some node suits the need.
func (n DeviceNeed) Lacks(nodes []Node) string {
	var models []string
	var largest unit.Bytes
	some, enough := false, false
	for i := range nodes {
		for k := range nodes[i].Devices {
			d := &nodes[i].Devices[k]
			if n.Kind == "" || d.ID.Kind() == n.Kind {
				models = append(models, cmp.Or(d.Model, "unknown"))
			}
			if n.suits(d) {
				some, largest, enough = true, max(largest, d.Memory), enough || d.Memory == 0 || d.Memory >= n.Memory
			}
		}
	}
	slices.Sort(models)
	switch {
	case len(models) == 0:
		return "no node has a " + n.kind()
	case !some:
		return fmt.Sprintf("each %s here is another model: %s", n.kind(), strings.Join(slices.Compact(models), ", "))
	case !enough:
		return "the largest here has " + largest.Exact()
	}
	return ""
}

func (n DeviceNeed) kind() string {
	switch n.Kind {
	case KindGPU:
		return "GPU"
	case KindCPU:
		return "CPU slot"
	}
	return "device"
}
