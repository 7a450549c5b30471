// Package jobapi is the HTTP interface through which training code tells what it did and asks whether to stop. It is compatible on the wire with
// KubeProfiler, at the root and below /attempt/<token>/, and has a richer set of requests below v1/jobs/.
//
// It decides whether a request is well-formed, whose it is, and whether that attempt is still the newest one; what a fact means for the job is
// decided elsewhere. An answer of 200 to the end of an epoch or a checkpoint is a promise: the fact is stored by the bus, or in the outbox on disk.
package jobapi
