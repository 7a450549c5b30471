package fit

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// feasible refuses what no known machine could ever run.
func (c *checker) feasible() {
	none := len(c.where.Nodes) == 0
	if !none && !(c.labelled() && c.unpacked()) {
		return
	}
	if none {
		return // the job waits until a node is known
	}
	if !c.offered() {
		return
	}
	c.enoughDevices()
	c.enoughMemory()
	c.enoughOfItsNode()
	if c.spec.Image != "" && !slices.ContainsFunc(c.where.Nodes, func(n train.Node) bool { return n.ContainerRuntime != "" || inCluster(n) }) {
		c.refuse("NoContainerRuntime", "image",
			"install docker or podman on the node, or leave image out and run the job as a process",
			"no node can run containers")
	}
}

// labelled drops the nodes that lack the job's labels; it returns false if none remains.
func (c *checker) labelled() bool {
	labels := c.spec.NodeLabels
	if len(labels) == 0 {
		return true
	}
	c.where.Nodes = slices.DeleteFunc(slices.Clone(c.where.Nodes), func(n train.Node) bool { return !n.Has(labels) })
	if len(c.where.Nodes) == 0 {
		c.refuse("NoNode", "node_labels", "label a node, or leave node_labels out", "no node has the labels %.200s",
			train.JoinLabels(labels))
		return false
	}
	return true
}

// offered drops the devices of another kind or model than the job needs, and nodes without any other. It returns false
// if no node has a device that the job needs.
func (c *checker) offered() bool {
	need := c.spec.DeviceNeed()
	if !need.Chosen() || len(c.reasons) > 0 { // a kind that was refused is nowhere
		return true
	}
	kind := train.DeviceNeed{Kind: need.Kind, Models: need.Models}
	if lacks := need.Lacks(c.where.Nodes); lacks != "" {
		field := "device"
		switch {
		case kind.Lacks(c.where.Nodes) == "":
			field = "estimated_memory_mib"
		case len(need.Models) > 0:
			field = "gpu"
		}
		c.refuse("NoSuchDevice", field, "`switchyard node list` shows the devices", "needs %s, and %s", need.Count(max(c.spec.MinDevices, 1)), lacks)
		return false
	}
	c.where.Nodes = slices.Clone(c.where.Nodes)
	for i, n := range c.where.Nodes {
		c.where.Nodes[i] = need.Of(n)
	}
	c.where.Nodes = slices.DeleteFunc(c.where.Nodes, func(n train.Node) bool { return len(n.Devices) == 0 })
	return true
}

// unpacked drops the nodes that cannot give a job its uploaded folder, a file of theirs as its data, or a terminal. It
// returns false if none remains.
func (c *checker) unpacked() bool {
	ofNode := c.paths.Data.Scheme == "file"
	if c.spec.Upload == "" && c.spec.Shell == nil && !ofNode {
		return true
	}
	c.where.Nodes = slices.DeleteFunc(slices.Clone(c.where.Nodes), inCluster)
	switch {
	case len(c.where.Nodes) > 0:
		return true
	case c.spec.Upload != "":
		c.refuse("NotSupported", "upload", "put the code into an image, or into a folder below a volume root, as custom_dir",
			"the nodes run pods, which cannot have an uploaded folder")
	case ofNode:
		c.refuse("NotSupported", "data_url", "name a claim or an export as datasets_dir", "the nodes run pods, which see no files of their nodes")
	default:
		c.refuse("NotSupported", "shell", "submit `sleep infinity` with a time_limit, and `kubectl exec -it` into its pod",
			"the nodes run pods, to which Switchyard attaches no terminal")
	}
	return false
}

func (c *checker) enoughDevices() {
	largest := slices.MaxFunc(c.where.Nodes, func(a, b train.Node) int { return len(a.Devices) - len(b.Devices) })
	gang, together := 0, map[train.Realm]int{}
	for _, n := range c.where.Nodes {
		together[n.Realm()] += len(n.Devices)
		gang = max(gang, together[n.Realm()])
	}
	least := max(c.spec.MinDevices, 1)
	switch {
	case least <= gang:
	case gang > len(largest.Devices):
		c.refuse("TooFewDevices", "min_devices", "ask for fewer",
			"want at least %d, all nodes of the cluster together have %d", least, gang)
	default:
		c.refuse("TooFewDevices", "min_devices", "ask for fewer",
			"want at least %d on one node, the largest node %s has %d", least, largest.ID, len(largest.Devices))
	}
}

// inCluster reports whether a node runs pods: there a job always finds a container runtime.
func inCluster(n train.Node) bool { return n.Backend == train.BackendKubernetes }

// enoughOfItsNode compares the processors and main memory wanted per process with those of the largest nodes.
func (c *checker) enoughOfItsNode() {
	cores, memory := 0, int64(0)
	for _, n := range c.where.Nodes {
		cores, memory = max(cores, n.Cores), max(memory, int64(n.Memory/unit.MiB))
	}
	few := func(field string, wanted int) {
		if cores > 0 && wanted > cores {
			c.refuse("TooManyCores", field, "ask for fewer", "want %d, the largest node has %d", wanted, cores)
		}
	}
	little := func(field string, wanted int64) {
		if memory > 0 && wanted > memory {
			c.refuse("TooMuchMemory", field, "ask for less", "want %s, the largest node has %s", (unit.Bytes(wanted) * unit.MiB).Exact(), (unit.Bytes(memory) * unit.MiB).Exact())
		}
	}
	few("cores", c.spec.Cores)
	little("main_memory_mib", c.spec.MainMemoryMiB)
	if servers := c.spec.ParameterServers; servers != nil {
		few("parameter_servers.cores", servers.Cores)
		little("parameter_servers.memory_mib", servers.MemoryMiB)
	}
}

// enoughMemory compares with the largest device. A device that does not report its memory may have enough.
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
		c.refuse("TooMuchMemory", "estimated_memory_mib", "a smaller batch_size needs less",
			"want %s per device, the largest device (node %s) has %s", asked.Exact(), on, most.Exact())
	}
}
