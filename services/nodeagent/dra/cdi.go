package dra

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/services/nodeagent/deviceplugin"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// cdiKind is the kind of the GPUs for the container runtime (Container Device Interface), cdiFile the file that
// describes them.
const (
	cdiKind = "switchyard.dev/gpu"
	cdiFile = "switchyard.dev-gpu.json"
)

type cdiSpec struct {
	Version string      `json:"cdiVersion"`
	Kind    string      `json:"kind"`
	Devices []cdiDevice `json:"devices"`
}

type cdiDevice struct {
	Name  string   `json:"name"`
	Edits cdiEdits `json:"containerEdits"`
}

type cdiEdits struct {
	Env    []string   `json:"env"`
	Nodes  []cdiNode  `json:"deviceNodes,omitempty"`
	Mounts []cdiMount `json:"mounts,omitempty"`
}

type cdiNode struct {
	Path     string `json:"path"`
	HostPath string `json:"hostPath"`
}

type cdiMount struct {
	HostPath      string   `json:"hostPath"`
	ContainerPath string   `json:"containerPath"`
	Options       []string `json:"options"`
}

// spec describes GPUs for the container runtime.
func spec(gpus map[string]gpu.Device, dev string, mps func() string) string {
	s := cdiSpec{Version: "0.5.0", Kind: cdiKind, Devices: []cdiDevice{}}
	for _, name := range slices.Sorted(maps.Keys(gpus)) {
		g := gpus[name]
		edits := cdiEdits{Env: []string{deviceplugin.Variable(g.UUID) + "=" + g.UUID}}
		for _, node := range deviceplugin.Nodes(g, dev) {
			edits.Nodes = append(edits.Nodes, cdiNode{"/dev/" + node, filepath.Join(dev, node)})
		}
		for _, dir := range deviceplugin.Folders(g, mps) {
			edits.Mounts = append(edits.Mounts, cdiMount{dir, dir, []string{"rw", "rbind"}})
		}
		s.Devices = append(s.Devices, cdiDevice{name, edits})
	}
	data, _ := json.MarshalIndent(s, "", " ") // strings alone
	return string(data)
}

// writeSpec replaces the description of the GPUs. The container runtime reads it when the folder changes.
func writeSpec(dir, text string) error {
	return installation.ReplaceShared(filepath.Join(dir, cdiFile), []byte(text))
}
