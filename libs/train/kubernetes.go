package train

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// digest is a few digits that tell apart what a shortened name no longer does.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

// KubernetesNodeID is the id of the node that Kubernetes calls name: the name itself where that may be an id, else the name without its dots and a digest
// of it.
func KubernetesNodeID(name string) NodeID {
	if _, err := ParseJobID(name); err == nil {
		return NodeID(name)
	}
	plain := strings.ReplaceAll(name, ".", "-")
	return NodeID(plain[:min(len(plain), MaxIDLength-9)] + "-" + digest(name))
}

// longestLabel is how long a name may be that Kubernetes also uses as a host name.
const longestLabel = 63

// PodName names the pod of one rank of an attempt, the same whoever asks: "<job>-<attempt>-<rank>". A job id that is no DNS label, or is too long for the
// name, is made to fit and gets a digest.
func PodName(job JobID, attempt, rank int) string {
	suffix := fmt.Sprintf("-%d-%d", attempt, rank)
	const widest = len("-1000000-100000")
	slug := strings.Trim(strings.ReplaceAll(strings.ToLower(string(job)), "_", "-"), "-")
	if slug != string(job) || len(slug) > longestLabel-widest {
		mark := "-" + digest(string(job))
		slug = slug[:min(len(slug), longestLabel-widest-len(mark))] + mark
	}
	return slug + suffix
}

// Home is the node whose agent serves the job API to every rank of the attempt, wherever it runs: one agent gives all ranks the same answer, so that a gang
// leaves together.
func (a Attempt) Home() NodeID { return a.Places()[0].Node }

// PartOn is what the attempt has on one node; nothing where it has no part there.
func (a Attempt) PartOn(node NodeID) Part {
	for _, p := range a.Places() {
		if p.Node == node {
			return p
		}
	}
	return Part{}
}

// DevicesOn are the devices of the attempt on one node.
func (a Attempt) DevicesOn(node NodeID) []DeviceID { return a.PartOn(node).Devices }

// IsOn says whether the attempt has a part on a node.
func (a Attempt) IsOn(node NodeID) bool {
	return slices.ContainsFunc(a.Places(), func(p Part) bool { return p.Node == node })
}
