package fit

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// feasible refuses what no machine that is known could ever run.
func (c *checker) feasible() {
	if c.spec.Strategy == train.StrategyParameterServer {
		c.refuse("NotSupported", "strategy", "use all_reduce", "parameter servers cannot be started here: jobs run on one machine")
	}
	if len(c.where.Nodes) == 0 {
		return // the job waits until one is known
	}
	if labels := c.spec.NodeLabels; len(labels) > 0 {
		c.where.Nodes = slices.DeleteFunc(slices.Clone(c.where.Nodes), func(n train.Node) bool { return !n.Has(labels) })
		if len(c.where.Nodes) == 0 {
			c.refuse("NoNode", "node_labels", "label a node, or leave node_labels out", "no node has the labels %.200s", train.JoinLabels(labels))
			return
		}
	}
	c.enoughDevices()
	c.enoughMemory()
	if c.spec.Image != "" && !slices.ContainsFunc(c.where.Nodes, func(n train.Node) bool { return n.ContainerRuntime != "" }) {
		c.refuse("NoContainerRuntime", "image", "install docker or podman on the node, or leave image out and run the job as a process", "no node can run containers")
	}
}

func (c *checker) enoughDevices() {
	largest := slices.MaxFunc(c.where.Nodes, func(a, b train.Node) int { return len(a.Devices) - len(b.Devices) })
	if least := max(c.spec.MinDevices, 1); least > len(largest.Devices) {
		c.refuse("TooFewDevices", "min_devices", "ask for fewer", "want at least %d on one node, the largest node %s has %d", least, largest.ID, len(largest.Devices))
	}
}

// enoughMemory compares with the largest device. A device that does not tell its memory may have enough.
func (c *checker) enoughMemory() {
	asked := c.spec.EstimatedMemory()
	if asked <= 0 || c.spec.EstimatedMemoryMiB > MaxMemoryMiB {
		return
	}
	var most unit.Bytes
	var on train.NodeID
	for _, n := range c.where.Nodes {
		for _, d := range n.Devices {
			if d.Memory == 0 {
				return
			}
			if d.Memory > most {
				most, on = d.Memory, n.ID
			}
		}
	}
	if most > 0 && asked > most {
		c.refuse("TooMuchMemory", "estimated_memory_mib", "a smaller batch_size needs less", "want %d MiB per device, the largest device (node %s) has %d", c.spec.EstimatedMemoryMiB, on, int64(most/unit.MiB))
	}
}
