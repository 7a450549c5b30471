// Package rpc has what people and services ask a service over the bus: the requests, their answers, and the subjects on
// which they are answered. A request changes no job; facts do.
package rpc

import "github.com/switchyard-dl/switchyard/libs/train"

// LogRequest asks the executor of a node for a piece of a job's output, on the subject
// `switchyard.executor.<node>.logs`.
type LogRequest struct {
	Job train.JobID `json:"job"`
	// Offset counts bytes since the job's first output; a negative one counts back from the end.
	Offset int64 `json:"offset"`
	// Max is the largest number of bytes wanted; the executor may return fewer.
	Max int `json:"max,omitempty"`
}

// LogChunk is a piece of a job's output.
type LogChunk struct {
	// Data is the output itself (base64 on the wire). Control characters are the job's own: escape them before showing
	// them in a terminal.
	Data []byte `json:"data"`
	// Next is the offset of what follows, Size the number of bytes that the job has written so far.
	Next int64 `json:"next"`
	Size int64 `json:"size"`
	// Ended reports that the job has ended and Data reaches to the end of its output.
	Ended bool `json:"ended,omitempty"`
	// Cut reports that output between Offset and Data was left out; a line in Data says how much.
	Cut bool `json:"cut,omitempty"`
}

// LogSubject is the subject on which the executor of a node answers a LogRequest.
func LogSubject(node train.NodeID) string { return "switchyard.executor." + string(node) + ".logs" }
