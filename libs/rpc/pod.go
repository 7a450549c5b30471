package rpc

import "github.com/switchyard-dl/switchyard/libs/train"

// PodSubject is where the planner answers a PodRequest with a PodAnswer.
const PodSubject = "switchyard.planner.pods"

// PodRequest asks where a pod is to run. The scheduler of the cluster asks again until it has an answer with a node.
type PodRequest struct {
	Pod train.PlainPod `json:"pod"`
	// Nodes are those on which the scheduler would start the pod.
	Nodes []train.NodeID `json:"nodes"`
}

// PodAnswer is the node with the pod's memory, which is booked, or why the pod waits.
type PodAnswer struct {
	Node   train.NodeID   `json:"node,omitempty"`
	Device train.DeviceID `json:"device,omitempty"`
	Reason train.Reason   `json:"reason"`
}
